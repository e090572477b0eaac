"""Who is there: what the coordinator knows about each device, and who may call itself by a name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from edgefl.base.device_labels import Properties

DEVICES = 10_000  # whose names are kept


@dataclass(frozen=True, slots=True)
class Announcement:
    """A device says that it is there, or its last will that it is not."""

    online: bool
    installation: str
    birth: int  # grows with every start of the same installation
    host: str = ""
    version: str = ""
    samples: int = 0
    back_end: str = ""
    site: str = ""  # whose broker it is at, if that is bridged
    speaks_for: int = 1  # devices behind it, of a gateway
    resting: str = ""  # why it is not there though its agent runs
    trouble: str = ""  # why its newest data cannot be used
    samples_from: float | None = None  # when those were read that it trains on instead; None: it has none
    moves: int = 0  # the number of the last addresses of the broker that it was told
    concise: bool = False  # it can be asked in one call to all, and its next task will do as a receipt
    arch: str = ""  # of its machine
    memory_mb: int | None = None

    @property
    def properties(self) -> Properties:
        """What it says of itself, by the names that `rounds.where` has for it."""
        return Properties(self.arch, self.memory_mb, self.version, self.back_end, self.samples)


@dataclass(frozen=True)  # without slots: one is made for every task and every answer (edgefl/base/records.py)
class Device:
    """One device as the coordinator knows it."""

    announced: Announcement
    live: bool = False  # heard from in this life of the coordinator, not only read from a retained message
    seconds_per_step: float | None = None
    holds: int = -1  # the last round whose model it was asked to fetch
    asked: tuple[int, int] = (0, 0)  # the last round it was asked for, and which opening of it
    asked_at: float = 0.0

    @property
    def online(self) -> bool:
        return self.announced.online


@dataclass(frozen=True, slots=True)
class NameRefused:
    """Why this one may not call itself by the name."""

    code: str
    reason: str


Claim: TypeAlias = Device | NameRefused | Literal["stale"]


def claim(devices: Mapping[str, Device], id: str, new: Announcement, *, retained: bool) -> Claim:
    """The device as it stands after what it announced, unless that does not stand.

    The same installation may always come again: it has restarted. Another one may take the name only of a device that
    is offline, or that has been silent since the coordinator started.
    """
    known = devices.get(id)
    if known is None and len(devices) >= DEVICES:
        return NameRefused("device.too_many", f"{DEVICES} devices are known, '{id}' would be one more")
    if known is None:
        return Device(new, live=not retained)
    same = known.announced.installation == new.installation
    if same and new.birth < known.announced.birth:
        return "stale"  # the last will of an earlier life
    if not same and not new.online:
        return "stale"  # the last will of one that was refused, or of a former holder of the name
    if refused := taken(devices, id, new):
        return refused
    live = known.live or not retained
    return replace(known, announced=new, live=live) if same else Device(new, live)


def taken(devices: Mapping[str, Device], id: str, new: Announcement) -> NameRefused | None:
    """Why another installation may not have this name now: its device is here."""
    known = devices.get(id)
    if known is None or known.announced.installation == new.installation or not (known.online and known.live):
        return None
    return NameRefused(
        "device.duplicate",
        f"device '{id}' is already connected from host '{known.announced.host}'; this one is on host"
        f" '{new.host}': give each device its own agent.id",
    )
