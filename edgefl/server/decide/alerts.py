"""What needs a person now, and what they are told of it. Pure: `step(state, event, rules) -> state`.

    facts ──▶ a threshold holds ──▶ pending ──quiet time──▶ open, told once ──▶ cleared ──hold time──▶ closed
                                       │                       ▲                   │
                                       └ it no longer holds    └─── it holds again ┘   (not told again)

A cause is a kind, a fleet and a subject: a device, a run, a schedule. Times are the wall clock's, in seconds since
1970, because a cause outlives the server. Messages stand in `state.outbox` until they are delivered. State and outbox
are written together: a message is decided once, and no kill loses it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, get_args

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.base.records import replace
from edgefl.server.decide import accuracy
from edgefl.server.decide.accuracy import AccuracyLevels, DevicesScored

AlertKind: TypeAlias = Literal[
    "away", "stale", "certificate", "disk", "temperature", "stalled", "failed", "accuracy", "broker"
]
KINDS: tuple[AlertKind, ...] = get_args(AlertKind)
OF_DEVICES: frozenset[AlertKind] = frozenset({"away", "stale", "certificate", "temperature", "disk", "accuracy"})
AHEAD: frozenset[AlertKind] = frozenset({"certificate", "stalled"})  # it is known when their threshold will hold
SERVER = "server"  # the subject of alerts about the server itself, which are of no fleet
BROKER = "broker"
FIRST_WAIT, LONGEST_WAIT = 10.0, 3600.0  # seconds before a message is sent again
GIVEN_UP = 3 * 86_400.0  # seconds after which a message that nothing takes is given up
OUTBOX = 1000  # messages that wait; then the oldest goes

Key: TypeAlias = tuple[AlertKind, str, str]  # kind, fleet, subject
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class AlertRules:
    """What an operator wants to be told; all times in seconds."""

    away: float = 3600.0
    stale: float = 86_400.0
    certificate: float = 30 * 86_400.0
    disk_free: float = 500e6  # bytes
    temperature: float = 80.0  # degrees Celsius
    stalled: float = 7200.0
    accuracy_drop: float = 0.1
    quiet: Mapping[str, float] = field(default_factory=dict)  # by kind: for how long a threshold must hold
    off: frozenset[str] = frozenset()
    hold: float = 1800.0  # for how long it must not hold until the alert is closed
    closed: bool = True  # whether an end is told as well
    channels: tuple[str, ...] = ()  # to each of which messages go

    def wait(self, kind: AlertKind) -> float:
        """How long a threshold must hold until a person is told."""
        threshold = {"away": self.away, "stale": self.stale}.get(kind, 0.0)
        return threshold + self.quiet.get(kind, 0.0)


@dataclass(frozen=True, slots=True)
class Alert:
    """One cause; `told` is None while it is pending, `cleared` while its threshold holds."""

    kind: AlertKind
    fleet: str
    subject: str
    since: float  # its threshold holds; may lie ahead: a certificate that will end
    figure: float = 0.0  # degrees, bytes, a share, or when a certificate ends
    reason: str = ""
    told: float | None = None
    cleared: float | None = None
    next: float | None = None  # when the threshold of one that is cleared will hold again
    quieted_by: str = ""  # the person who said that it is known

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.kind, self.fleet, self.subject

    @property
    def id(self) -> str:
        """The same as long as it lasts, and of no other alert."""
        return _digest([*self.key, self.since])

    @property
    def open(self) -> bool:
        """Whether it was told, and still holds."""
        return self.told is not None and self.cleared is None

    @property
    def needs_person(self) -> bool:
        """Whether it stands on the list of what needs a person now."""
        return self.open and not self.quieted_by


@dataclass(frozen=True, slots=True)
class AlertNotice:
    """What is told at one time of one kind in one fleet."""

    what: Literal["opened", "closed"]
    at: float
    alerts: tuple[Alert, ...]

    @property
    def id(self) -> str:
        """The same however often it is sent."""
        return _digest([self.what, *(alert.id for alert in self.alerts)])


@dataclass(frozen=True, slots=True)
class OutgoingNotice:
    """A notice on its way to one channel."""

    channel: str
    notice: AlertNotice
    attempts: int = 0
    at: float = 0.0  # not sent before

    @property
    def key(self) -> str:
        """Its place in the outbox."""
        return f"{self.channel}/{self.notice.id}"

    def due(self, wall: float) -> bool:
        """Whether it is to be sent; also where the clock was set back since."""
        return self.at <= wall or self.at > wall + LONGEST_WAIT


@dataclass(frozen=True, slots=True)
class AlertState:
    """All causes, and all messages that were not delivered yet."""

    alerts: Mapping[Key, Alert] = field(default_factory=dict)
    outbox: Mapping[str, OutgoingNotice] = field(default_factory=dict)
    heard: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by fleet: devices that were ever there
    levels: Mapping[tuple[str, str], AccuracyLevels] = field(default_factory=dict)  # by fleet and series of runs
    # of this life of the server, not on disk:
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    spoken: Mapping[str, frozenset[str]] = field(default_factory=dict)  # devices that something was heard of

    @property
    def open(self) -> list[Alert]:
        """What was told and still holds, the newest last."""
        return sorted((alert for alert in self.alerts.values() if alert.open), key=lambda one: (one.since, one.key))


# ---- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceFact:
    """A fleet tells a fact of one of its devices, or of its broker."""

    wall: float
    fleet: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class RunStanding:
    """A run of the queue."""

    name: str
    number: int
    fleet: str
    phase: str
    series: str  # its schedule, or its own name
    moved: float  # when it last closed a round, first began to work, or ended
    started: float = 0.0  # when its coordinator was started in this life of the server
    reason: str = ""
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class RunsLookedAt:
    """All runs that the queue knows, and all series of runs whose accuracies are compared."""

    wall: float
    runs: tuple[RunStanding, ...]
    series: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DiskLookedAt:
    """The server has this number of free bytes where it keeps its state."""

    wall: float
    free: float


@dataclass(frozen=True, slots=True)
class AlertsTicked:
    """Time has passed; since the last tick the clock on the wall was set forward by `jumped` seconds."""

    wall: float
    jumped: float = 0.0


@dataclass(frozen=True, slots=True)
class AlertQuieted:
    """A person knows of this alert."""

    wall: float
    id: str
    by: str


@dataclass(frozen=True, slots=True)
class NoticeDelivered:
    """A channel has taken a message."""

    wall: float
    key: str


@dataclass(frozen=True, slots=True)
class NoticeFailed:
    """A channel has not taken a message."""

    wall: float
    key: str


AlertEvent: TypeAlias = (
    DeviceFact
    | RunsLookedAt
    | DevicesScored
    | DiskLookedAt
    | AlertsTicked
    | AlertQuieted
    | NoticeDelivered
    | NoticeFailed
)


def step(state: AlertState, event: AlertEvent, rules: AlertRules) -> AlertState:
    """Return what follows from this event; the same object if nothing does."""
    turn = _AlertTurn(state, rules, event.wall)
    match event:
        case DeviceFact(fleet=fleet, fact=fact):
            turn.hear(fleet, fact)
        case RunsLookedAt():
            turn.look_at_runs(event)
        case DevicesScored():
            turn.compare(event)
        case DiskLookedAt(free=free):
            turn.decide(free < rules.disk_free, ("disk", "", SERVER), free)
        case AlertsTicked(jumped=jumped):
            turn.tick(jumped)
        case AlertQuieted():
            turn.quiet(event)
        case NoticeDelivered(key=key):
            turn.take_out(key)
        case NoticeFailed(key=key):
            turn.send_later(key)
    return turn.result()


class _AlertTurn:
    """One event, as it is carried out: tables are copied when they are first changed."""

    def __init__(self, state: AlertState, rules: AlertRules, wall: float) -> None:
        self.state, self.rules, self.wall = state, rules, wall
        self.alerts: dict[Key, Alert] | None = None

    def result(self) -> AlertState:
        return self.state if self.alerts is None else replace(self.state, alerts=self.alerts)

    # ---- devices ---------------------------------------------------------------------------------------------------

    def hear(self, fleet: str, fact: Fact) -> None:
        match fact:
            case events.Joined(device=device):
                self._hear_of(fleet, device)
                self.clear(("away", fleet, device))
                if not fact.stale:
                    self.clear(("stale", fleet, device))
            case events.Lost(device=device) if self._is_member(fleet, device):
                self._hear_of(fleet, device)
                self.clear(("temperature", fleet, device))
                if fact.resting:  # it says itself why it is not there, and will be back
                    self.clear(("stale", fleet, device))
                self.decide(not fact.resting, ("away", fleet, device), reason=fact.reason)
            case events.DataBroken(device=device):
                self._hear_of(fleet, device)
                self.hold(("stale", fleet, device), reason=fact.reason)
                if fact.samples_from is None:  # it is there, and says why it cannot train
                    self.clear(("away", fleet, device))
            case events.DataMended(device=device):
                self.clear(("stale", fleet, device))
            case events.Vitals():
                self._look_at_vitals(fleet, fact)
            case _:
                self._hear_of_fleet(fleet, fact)

    def _look_at_vitals(self, fleet: str, fact: events.Vitals) -> None:
        device, degrees, free = fact.device, fact.temperature, fact.disk_free
        if degrees is not None:
            self.decide(degrees >= self.rules.temperature, ("temperature", fleet, device), degrees)
        if free is not None:
            self.decide(free < self.rules.disk_free, ("disk", fleet, device), free)

    def _hear_of_fleet(self, fleet: str, fact: Fact) -> None:
        """What is not said by a device itself."""
        match fact:
            case events.Certificate(device=device, ends=ends):
                self.hold(("certificate", fleet, device), ends, begins=ends - self.rules.certificate)
            case events.Expired(device=device, ended=ended, remedy=remedy):
                self.hold(("certificate", fleet, device), ended, remedy, begins=ended - self.rules.certificate)
            case events.Enrolled(devices=devices):
                self._set_members(fleet, frozenset(devices))
            case events.Disconnected(reason=reason):
                self.hold(("broker", fleet, BROKER), reason=reason)
            case events.Connected():
                self.clear(("broker", fleet, BROKER))

    def _is_member(self, fleet: str, device: str) -> bool:
        return fleet not in self.state.members or device in self.state.members[fleet]

    def _hear_of(self, fleet: str, device: str) -> None:
        state = self.state
        if device not in (heard := state.heard.get(fleet, frozenset())):
            state = replace(state, heard={**state.heard, fleet: heard | {device}})
        if device not in (spoken := state.spoken.get(fleet, frozenset())):
            state = replace(state, spoken={**state.spoken, fleet: spoken | {device}})
        self.state = state

    def _set_members(self, fleet: str, members: frozenset[str]) -> None:
        """A device that was there once, and of which nothing is heard in this life, is away from now on."""
        heard = self.state.heard.get(fleet, frozenset()) & members
        if heard != self.state.heard.get(fleet, frozenset()):
            self.state = replace(self.state, heard={**self.state.heard, fleet: heard})
        self.state = replace(self.state, members={**self.state.members, fleet: members})
        for key in list(self.now):
            if key[0] in OF_DEVICES and key[1] == fleet and key[2] not in members:
                self._drop(key)
        for device in sorted(heard - self.state.spoken.get(fleet, frozenset())):
            self.hold(("away", fleet, device))

    # ---- runs ------------------------------------------------------------------------------------------------------

    def look_at_runs(self, event: RunsLookedAt) -> None:
        stand = {key for run in event.runs if (key := self._stalls(run)) is not None}
        fail = {self._fails(run) for run in _last_of_each_series(event.runs) if run.phase == "failed"}
        for key in [key for key in self.now if key[0] in ("stalled", "failed") and key not in stand | fail]:
            self.clear(key)
        self._forget_series(event.series)

    def _stalls(self, run: RunStanding) -> Key | None:
        """The cause that is not over, if this run may stand still."""
        key: Key = "stalled", run.fleet, run.name
        before = self.now.get(key)
        told = before is not None and before.open
        if run.phase == "working":
            if not (told and run.moved + self.rules.stalled <= self.wall):  # a restart mends nothing
                self.hold(key, reason=run.reason, begins=max(run.moved, run.started) + self.rules.stalled)
            return key
        return key if told and run.phase in ("queued", "stopping") else None  # its coordinator is started again

    def _fails(self, run: RunStanding) -> Key:
        key: Key = "failed", run.fleet, run.series
        self.hold(key, reason=run.reason, begins=min(run.moved, self.wall))
        return key

    def _forget_series(self, series: frozenset[str]) -> None:
        """Accuracies of runs that are gone are compared with nothing any more."""
        gone = [key for key in self.state.levels if key[1] not in series]
        if gone:
            low = self._low()
            self.state = replace(self.state, levels=_without(self.state.levels, gone))
            for fleet, device in sorted(low - self._low()):
                self.clear(("accuracy", fleet, device))

    def compare(self, event: DevicesScored) -> None:
        key = event.fleet, event.series
        before = self.state.levels.get(key, AccuracyLevels())
        levels = accuracy.compared(before, event, self.rules.accuracy_drop)
        if levels is before:
            return
        self.state = replace(self.state, levels={**self.state.levels, key: levels})
        low = self._low()
        for device, score in event.scores.items():
            cause: Key = "accuracy", event.fleet, device
            if device in levels.low:
                usual = accuracy.usual(levels.recent[device])
                self.hold(cause, usual - score, f"{score:.1%} in round {event.round} of '{event.run}', was {usual:.1%}")
            elif (event.fleet, device) not in low:
                self.clear(cause)

    def _low(self) -> set[tuple[str, str]]:
        return {(fleet, device) for (fleet, _), levels in self.state.levels.items() for device in levels.low}

    # ---- causes ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Mapping[Key, Alert]:
        """The alerts as they are at this moment of the turn."""
        return self.state.alerts if self.alerts is None else self.alerts

    def decide(self, holds: bool, key: Key, figure: float = 0.0, reason: str = "") -> None:
        """The threshold of this cause holds from now on, or does not."""
        if holds:
            self.hold(key, figure, reason)
        else:
            self.clear(key)

    def hold(self, key: Key, figure: float = 0.0, reason: str = "", *, begins: float | None = None) -> None:
        """The threshold holds; since or from a moment that is known, or from now on unless it holds already."""
        before = self.now.get(key)
        if before is None:
            if key[0] not in self.rules.off:
                self._put(Alert(*key, self.wall if begins is None else begins, figure, reason))
        elif before.told is None:
            since = before.since if begins is None else begins
            self._put(replace(before, since=since, figure=figure, reason=reason))
        elif begins is not None and begins > self.wall:
            cleared = self.wall if before.cleared is None else before.cleared
            self._put(replace(before, cleared=cleared, next=begins, figure=figure, reason=reason))
        elif before.cleared is not None:
            self._put(replace(before, cleared=None, next=None))

    def clear(self, key: Key) -> None:
        """The threshold no longer holds."""
        before = self.now.get(key)
        if before is None:
            return
        if before.told is None:
            self._drop(key)
        else:
            cleared = self.wall if before.cleared is None else before.cleared
            self._put(replace(before, cleared=cleared, next=None))

    def _put(self, alert: Alert) -> None:
        if self.now.get(alert.key) != alert:
            self._tables()[alert.key] = alert

    def _drop(self, key: Key) -> None:
        self._tables().pop(key, None)

    def _tables(self) -> dict[Key, Alert]:
        if self.alerts is None:
            self.alerts = dict(self.state.alerts)
        return self.alerts

    # ---- time, people, messages ------------------------------------------------------------------------------------

    def tick(self, jumped: float) -> None:
        opened: list[Alert] = []
        closed: list[Alert] = []
        for before in list(self.now.values()):
            alert = self._of_this_clock(before, jumped)
            if alert.kind in self.rules.off:
                self._drop(alert.key)
            elif alert.told is None:
                if alert.since + self.rules.wait(alert.kind) <= self.wall:
                    alert = replace(alert, told=self.wall)
                    opened.append(alert)
                self._put(alert)
            elif alert.cleared is None:
                self._put(alert)
            elif alert.next is not None and alert.next <= self.wall:
                self._put(replace(alert, cleared=None, next=None))
            elif alert.cleared + self.rules.hold <= self.wall:
                self._drop(alert.key)
                if alert.next is not None:
                    self._put(Alert(*alert.key, alert.next, alert.figure))
                if self.rules.closed and not alert.quieted_by:
                    closed.append(alert)
            else:
                self._put(alert)
        self._send([*_notices("opened", self.wall, opened), *_notices("closed", self.wall, closed)])

    def _of_this_clock(self, alert: Alert, jumped: float) -> Alert:
        """What lasts since a moment has lasted no longer because the clock was set; no past moment lies ahead."""
        since = alert.since
        if alert.told is None and alert.kind not in AHEAD:
            since = min(since + jumped, self.wall)
        cleared = None if alert.cleared is None else min(alert.cleared, self.wall)
        return replace(alert, since=since, cleared=cleared)

    def quiet(self, event: AlertQuieted) -> None:
        for alert in self.now.values():
            if alert.open and alert.id == event.id:
                self._put(replace(alert, quieted_by=event.by))
                if alert.kind == "accuracy":  # what it reaches now is what it will be compared with
                    self.state = replace(
                        self.state,
                        levels={
                            key: accuracy.forgotten(levels, alert.subject) if key[0] == alert.fleet else levels
                            for key, levels in self.state.levels.items()
                        },
                    )
                return

    def _send(self, notices: Iterable[AlertNotice]) -> None:
        wanted_by = self.rules.channels
        new = [OutgoingNotice(channel, notice, at=self.wall) for notice in notices for channel in wanted_by]
        kept = [one for one in self.state.outbox.values() if one.channel in wanted_by]
        if new or len(kept) < len(self.state.outbox):
            self.state = replace(self.state, outbox={one.key: one for one in [*kept, *new][-OUTBOX:]})

    def take_out(self, key: str) -> None:
        if key in self.state.outbox:
            self.state = replace(self.state, outbox=_without(self.state.outbox, [key]))

    def send_later(self, key: str) -> None:
        if (one := self.state.outbox.get(key)) is None:
            return
        if self.wall - one.notice.at > GIVEN_UP:
            self.take_out(key)
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(one.attempts, 20))
        later = replace(one, attempts=one.attempts + 1, at=self.wall + wait)
        self.state = replace(self.state, outbox={**self.state.outbox, key: later})


def _last_of_each_series(runs: Iterable[RunStanding]) -> list[RunStanding]:
    """The newest run of each series that has come to an end of its own, if its folder is there."""
    last: dict[tuple[str, str], RunStanding] = {}
    for run in sorted(runs, key=lambda run: run.number):
        if run.phase in ("finished", "failed"):
            last[run.fleet, run.series] = run
    return [run for run in last.values() if not run.deleted]


def _notices(what: Literal["opened", "closed"], at: float, alerts: list[Alert]) -> list[AlertNotice]:
    """Causes of one kind in one fleet are told together: a site without power is one message."""
    together: dict[tuple[str, str], list[Alert]] = {}
    for alert in sorted(alerts, key=lambda one: one.key):
        together.setdefault((alert.kind, alert.fleet), []).append(alert)
    return [AlertNotice(what, at, tuple(group)) for group in together.values()]


def _without(table: Mapping[K, V], keys: Iterable[K]) -> dict[K, V]:
    gone = set(keys)
    return {key: value for key, value in table.items() if key not in gone}


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
