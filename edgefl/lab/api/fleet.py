"""The fleet of a simulated run: how many devices, who has which data, and what the devices are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from edgefl.base.errors import ConfigError, nearest

DEVICES = 10  # unless it is said, or the data say it


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The devices of a simulated run, and how one data set is divided among them.

    >>> import edgefl
    >>> edgefl.Fleet(devices=20, split="dirichlet", omega=0.1, cohort=5).devices
    20
    >>> edgefl.Fleet(profiles={"pi4": 12, "jetson-nano": 6}, dropout=0.1).size
    18
    """

    devices: int | None = None  # one for each client or profile; else ten
    split: Literal["iid", "dirichlet", "classes", "natural", "power_law"] | None = None  # natural for clients
    omega: float | None = None  # of dirichlet: small is one-sided
    per_device: int | None = None  # of classes and power_law: classes that each device has
    cohort: int | None = None  # devices that a round asks; all unless said
    profiles: Mapping[str, int] = field(default_factory=dict)  # how many of each; then the run has a virtual clock
    dropout: float = 0.0  # chance that an asked device breaks down in a round
    stragglers: float = 0.0  # share of devices that make only some of the epochs
    availability: Mapping[str, Any] | None = None  # when they are online, as in a run file

    @property
    def size(self) -> int | None:
        """How many devices there are, as far as this says it."""
        return self.devices or sum(self.profiles.values()) or None

    def tables(self, owners: int | None = None) -> dict[str, Any]:
        """What a run file says of it, where the data have this number of natural owners, or none."""
        split = self.split or ("iid" if owners is None else "natural")
        devices = self.size or (owners if owners and split == "natural" else DEVICES)
        options = {"omega": self.omega, "per_device": self.per_device}
        emulated = {
            "profiles": dict(self.profiles),
            "dropout": self.dropout,
            "stragglers": self.stragglers,
            "availability": None if self.availability is None else dict(self.availability),
        }
        tables: dict[str, Any] = {"task": {"partition": {"kind": split, "devices": devices, **_given(options)}}}
        if self.cohort is not None:
            tables["rounds"] = {"cohort": self.cohort}
        if any(emulated.values()):
            tables["fleet"] = {key: value for key, value in emulated.items() if value}
        return tables


FleetLike: TypeAlias = int | Mapping[str, Any] | Fleet


def fleet_of(given: Any) -> Fleet:
    """The fleet that a number or a table means (Any: from outside)."""
    if isinstance(given, Fleet):
        return _positive(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return _positive(Fleet(devices=given))
    if not isinstance(given, Mapping):
        raise ConfigError(f"fleet = {given!r}: give a number of devices, an edgefl.Fleet, or its keys as a dict")
    known = [one.name for one in fields(Fleet)]
    if unknown := [key for key in given if key not in known]:
        raise ConfigError(f"fleet: unknown key '{unknown[0]}'; {nearest(str(unknown[0]), known)}")
    return _positive(Fleet(**given))


def _positive(fleet: Fleet) -> Fleet:
    """The fleet, if it has devices."""
    if fleet.devices is not None and fleet.devices < 1:
        raise ConfigError(f"fleet: devices = {fleet.devices}; give at least 1")
    return fleet


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}
