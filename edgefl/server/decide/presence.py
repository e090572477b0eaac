"""Which devices of a fleet are there. Pure: `step(state, event) -> state, facts`.

A device says that it is there, that it rests, or, by its last will, that it is gone; the broker keeps the last word.
After a reconnect all of them are announced again: a device of which nothing is heard within GRACE is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.base.records import replace

GRACE = 30.0  # seconds after a reconnect in which a device may say that it is still there


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What a device says of itself; `trouble` is about its data."""

    online: bool
    samples: int = 0
    host: str = ""
    version: str = ""
    back_end: str = ""
    resting: str = ""
    trouble: str = ""
    samples_from: float | None = None
    arch: str = ""
    memory_mb: int | None = None
    moves: int = 0  # the number of the last addresses of the broker that it knows


@dataclass(frozen=True, slots=True)
class DeviceAnnounced:
    """A device has announced itself; its key is that of a member."""

    now: float
    device: str
    status: DeviceStatus
    vitals: events.Vitals | None = None


@dataclass(frozen=True, slots=True)
class DeviceBarred:
    """A device announced itself that may not: its key or its version is wrong."""

    now: float
    device: str
    code: str
    reason: str
    version: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class FleetMembersRead:
    """Who belongs to the fleet, and whose certificate has ended (when, and the remedy)."""

    now: float
    devices: tuple[str, ...]
    expired: tuple[tuple[str, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerBack:
    """The connection is there again: what the broker kept is sent again."""

    now: float


@dataclass(frozen=True, slots=True)
class BrokerGone:
    """The connection was lost."""

    now: float
    reason: str


@dataclass(frozen=True, slots=True)
class GraceOver:
    """Time has passed since the reconnect."""

    now: float


PresenceEvent: TypeAlias = DeviceAnnounced | DeviceBarred | FleetMembersRead | BrokerBack | BrokerGone | GraceOver


@dataclass(frozen=True, slots=True)
class PresenceState:
    """The devices of one fleet."""

    devices: Mapping[str, DeviceStatus] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    expired: frozenset[str] = frozenset()
    barred: Mapping[str, str] = field(default_factory=dict)  # the reason that was told
    unheard: frozenset[str] = frozenset()  # were there before the reconnect
    grace_ends: float | None = None

    @property
    def online(self) -> list[str]:
        """The devices that could be asked to work."""
        return sorted(name for name, status in self.devices.items() if status.online)

    @property
    def samples(self) -> int:
        """Of all devices, as each of them announced last."""
        return sum(status.samples for status in self.devices.values())


def step(  # noqa: PLR0911  one event, one case
    state: PresenceState, event: PresenceEvent
) -> tuple[PresenceState, tuple[Fact, ...]]:
    """Return what follows from this event."""
    match event:
        case DeviceAnnounced():
            return _said(state, event)
        case DeviceBarred(device=device, reason=reason):
            if state.barred.get(device) == reason:
                return state, ()
            refused = events.Refused(device, event.code, reason, barred=True, version=event.version, host=event.host)
            return replace(state, barred={**state.barred, device: reason}), (refused,)
        case FleetMembersRead():
            return _members(state, event)
        case BrokerBack(now=now):
            there = frozenset(name for name, status in state.devices.items() if status.online or status.trouble)
            return replace(state, unheard=there, grace_ends=now + GRACE), (events.Connected(),)
        case BrokerGone(reason=reason):
            return replace(state, unheard=frozenset(), grace_ends=None), (events.Disconnected(reason),)
        case GraceOver(now=now) if state.grace_ends is not None and now >= state.grace_ends:
            gone = {name: replace(state.devices[name], online=False, trouble="") for name in state.unheard}
            told = tuple(events.Lost(name, "not heard of since the connection") for name in sorted(gone))
            return replace(state, devices={**state.devices, **gone}, unheard=frozenset(), grace_ends=None), told
    return state, ()


def _said(state: PresenceState, event: DeviceAnnounced) -> tuple[PresenceState, tuple[Fact, ...]]:
    name, status, before = event.device, event.status, state.devices.get(event.device)
    barred = {other: why for other, why in state.barred.items() if other != name}
    after = replace(state, devices={**state.devices, name: status}, unheard=state.unheard - {name}, barred=barred)
    vitals: tuple[Fact, ...] = (event.vitals,) if event.vitals else ()
    if before == status and name not in state.barred:
        return after, vitals
    facts: list[Fact] = []
    broken = events.DataBroken(
        name, status.trouble, status.samples_from if status.online else None, status.version, status.host
    )
    if status.online:
        joined = events.Joined(
            name,
            status.samples,
            status.host,
            status.version,
            status.back_end,
            stale=bool(status.trouble),
            arch=status.arch,
            memory_mb=status.memory_mb,
        )
        facts.append(joined)
        if status.trouble:
            facts.append(broken)
    elif status.trouble:  # it is there, and has nothing to train on
        facts.append(broken)
    else:
        facts.append(events.Lost(name, status.resting, bool(status.resting)))
    if before and before.trouble and not status.trouble and (status.online or status.resting):
        facts.append(events.DataMended(name))
    return after, (*facts, *vitals)


def _members(state: PresenceState, event: FleetMembersRead) -> tuple[PresenceState, tuple[Fact, ...]]:
    facts: list[Fact] = []
    if event.devices != state.members:
        facts.append(events.Enrolled(event.devices))
    gone = state.devices.keys() - set(event.devices)
    left_online = [name for name in sorted(gone) if state.devices[name].online]
    facts += [events.Lost(name, "no longer a member of this fleet") for name in left_online]
    facts += [events.Expired(name, at, why) for name, at, why in event.expired if name not in state.expired]
    left = {name: status for name, status in state.devices.items() if name not in gone}
    expired = frozenset(name for name, _, _ in event.expired)
    return replace(state, devices=left, members=event.devices, expired=expired), tuple(facts)
