"""Vital signs: how the machine of a device fares, as far as the machine tells. Each sign is declared once, here.

To add one, append a field to `VitalSigns`. The message (`edgefl.wire.messages.WireVitals`) and the fact
(`edgefl.base.events.Vitals`) inherit its fields. Prometheus, `edgefl status`, logs and page show what its `Sign` says.
Two more places belong to it: `device_agent/shell/vitals.py` reads it, and `docs/protocol.md` describes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from pydantic import Field

GIGABYTE = 1e9

Celsius: TypeAlias = Annotated[float, Field(ge=-100, le=200, allow_inf_nan=False)]
Load: TypeAlias = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bytes: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]  # JSON would take thousands of digits

Unit: TypeAlias = Literal["celsius", "number", "share", "bytes", "flag"]  # `format.js` of the page shows the same ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How one vital sign is shown."""

    unit: Unit
    metric: str  # its name in Prometheus
    help: str  # what Prometheus says of it
    words: str = ""  # in logs and `edgefl status`, {} is the value; without words it is not told there
    brief: bool = False  # whether it also stands in the table of devices of `edgefl status`
    title: str = ""  # of its line on the page of a device; without a title it has no line of its own
    column: str = ""  # title of its column in the page's table of devices; without a title it has none
    alarm: float | None = None  # from this value on the page shows the column in red
    of: str = ""  # the sign that it completes: a total, or a flag in the line of that sign
    alone: bool = False  # whether such a flag is also told while that sign is not known


@dataclass(frozen=True)
class VitalSigns:
    """The fields of all signs, in the order of wire and facts; None is "the machine does not tell"."""

    __slots__ = ()  # a record that inherits the fields has slots of its own

    temperature: Annotated[
        Celsius | None,
        Sign(
            unit="celsius",
            metric="edgefl_device_temperature_celsius",
            help="Of its hottest processor.",
            words="{}",
            brief=True,
            title="Temperature",
            column="Temp.",
            alarm=80.0,
        ),
    ] = None
    throttled: Annotated[  # slowed down just now: too hot, or too little power
        bool | None,
        Sign(
            unit="flag",
            metric="edgefl_device_throttled",
            help="Whether it is slowed down: too hot, too little power.",
            words="throttled",
            brief=True,
            alarm=1.0,
            of="temperature",
            alone=True,
        ),
    ] = None
    load: Annotated[
        Load | None,
        Sign(
            unit="number",
            metric="edgefl_device_load_ratio",
            help="Load per processor, over a minute.",
            words="load {}",
            title="Load per processor",
        ),
    ] = None
    memory_free: Annotated[
        Bytes | None,
        Sign(
            unit="bytes",
            metric="edgefl_device_memory_free_bytes",
            help="Memory that programs can still get.",
            words="{} of memory free",
            title="Memory free",
        ),
    ] = None
    memory_total: Annotated[
        Bytes | None,
        Sign(unit="bytes", metric="edgefl_device_memory_total_bytes", help="All of it.", of="memory_free"),
    ] = None
    disk_free: Annotated[
        Bytes | None,
        Sign(
            unit="bytes",
            metric="edgefl_device_disk_free_bytes",
            help="Free where its agent keeps its files.",
            words="{} of disk free",
            title="Disk free",
        ),
    ] = None
    disk_total: Annotated[
        Bytes | None,
        Sign(unit="bytes", metric="edgefl_device_disk_total_bytes", help="All of that disk.", of="disk_free"),
    ] = None
    battery: Annotated[
        Share | None,
        Sign(
            unit="share",
            metric="edgefl_device_battery_ratio",
            help="Charge of its battery.",
            words="battery {}",
            brief=True,
            title="Battery",
        ),
    ] = None
    charging: Annotated[
        bool | None,
        Sign(
            unit="flag",
            metric="edgefl_device_charging",
            help="Whether it is charging, full or on mains.",
            words="charging",
            of="battery",
        ),
    ] = None


SIGNS: Mapping[str, Sign] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(VitalSigns, include_extras=True).items()
}


def described(readings: Mapping[str, Any]) -> str:
    """Return all that is known of a machine in one line; names that are no vital sign are left out."""
    return ", ".join(_words(readings, brief=False)) or "its machine reports nothing"


def glance(readings: Mapping[str, Any]) -> str:
    """Return what matters of a machine in a few words, for a table; empty if none of that is known."""
    return ", ".join(_words(readings, brief=True))


def rows(readings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return all signs as a table: a title and a value, `-` where the machine does not tell."""
    for name, sign in SIGNS.items():
        value = readings.get(name)
        if not sign.title:
            if sign.unit == "flag" and sign.alone and value and readings.get(sign.of) is None:
                yield sign.words.capitalize(), "yes"
            continue
        if value is None:
            yield sign.title, "-"
            continue
        text = _amount(value, sign.unit, brief=False)
        for other, completing in SIGNS.items():
            if completing.of == name and (more := readings.get(other)):
                flag = completing.unit == "flag"
                text += f", {completing.words}" if flag else f" of {_amount(more, completing.unit, brief=False)}"
        yield sign.title, text


def _words(readings: Mapping[str, Any], *, brief: bool) -> Iterator[str]:
    for name, sign in SIGNS.items():
        value = readings.get(name)
        if not isinstance(value, int | float) or not sign.words or (brief and not sign.brief):
            continue
        if sign.unit != "flag":
            yield sign.words.format(_amount(value, sign.unit, brief=brief))
        elif value and (sign.alone or not sign.of or readings.get(sign.of) is not None):
            yield sign.words


def _amount(value: float, unit: Unit, *, brief: bool) -> str:
    match unit:
        case "celsius":
            return f"{value:.{0 if brief else 1}f} °C"
        case "bytes":
            return f"{value / GIGABYTE:.1f} GB"
        case "share":
            return f"{value:.0%}"
        case _:
            return f"{value:.2f}"
