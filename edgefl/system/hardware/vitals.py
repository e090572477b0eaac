"""How a machine fares, in words: the same in the story of a run, in its views and in what a device declines with."""

from typing import Protocol

GIGABYTE = 1e9


class Faring(Protocol):
    """Whatever says how a machine fares; what it does not tell is None. Units are those of `events.Vitals`."""

    @property
    def temperature(self) -> float | None: ...
    @property
    def throttled(self) -> bool | None: ...
    @property
    def load(self) -> float | None: ...
    @property
    def memory_free(self) -> int | None: ...
    @property
    def disk_free(self) -> int | None: ...
    @property
    def battery(self) -> float | None: ...
    @property
    def charging(self) -> bool | None: ...


def described(vitals: Faring) -> str:
    """What is known, in one line."""
    words = [
        "" if vitals.temperature is None else f"{vitals.temperature:.1f} °C",
        "throttled" if vitals.throttled else "",
        "" if vitals.load is None else f"load {vitals.load:.2f}",
        "" if vitals.memory_free is None else f"{vitals.memory_free / GIGABYTE:.1f} GB of memory free",
        "" if vitals.disk_free is None else f"{vitals.disk_free / GIGABYTE:.1f} GB of disk free",
        "" if vitals.battery is None else f"battery {vitals.battery:.0%}",
        "charging" if vitals.battery is not None and vitals.charging else "",
    ]
    return ", ".join(word for word in words if word) or "its machine tells nothing"
