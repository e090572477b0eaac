"""Alerts, as the server carries them out: it hears facts, looks at runs and disk, writes, and sends.

    fleets ── hear ──▶ step ──▶ once in LOOK seconds: runs and disk are read in the background ──▶ written ──▶ sent

What is heard changes memory only. Once in LOOK seconds everything that has changed is written in one piece: causes that
are now told, together with their messages. Messages are sent in a background of their own, which may take its time.
Where the disk is full, alerts are sent all the same, because that is what they are for; a kill in that moment may
have them told again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import DEBUG, WARNING
from typing import Any, Protocol

from edgefl.base.errors import ConfigError, EdgeflError, StoreError
from edgefl.base.events import Fact
from edgefl.base.records import replace
from edgefl.server.decide import alerts
from edgefl.server.decide.accuracy import DevicesScored
from edgefl.server.decide.alerts import (
    AlertEvent,
    AlertNotice,
    AlertQuieted,
    AlertRules,
    AlertsTicked,
    DeviceFact,
    DiskLookedAt,
    NoticeDelivered,
    NoticeFailed,
    OutgoingNotice,
    RunsLookedAt,
    RunStanding,
)
from edgefl.server.decide.runs import QueuedRun, ServerState
from edgefl.server.durable import alert_rows
from edgefl.server.durable.rows import RowStore
from edgefl.system.background import Background, Crashed, Put, Work
from edgefl.system.clock import Clock

log = logging.getLogger(__name__)

JUMP = 30.0  # seconds between two looks by which the clock on the wall may be corrected without a word
LOOK = 60.0  # seconds between two looks: what happens between them is told together


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run that works is written down, and which series it belongs to."""

    name: str
    fleet: str
    series: str
    folder: str


@dataclass(frozen=True, slots=True)
class RunStory:
    """What is new in a run's folder: when it closed a round last, why it waits, and what devices evaluated."""

    name: str
    moved: float
    waiting: str
    scored: tuple[DevicesScored, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What was read in the background."""

    stories: tuple[RunStory, ...]
    free: float | None  # bytes where the server keeps its state; None: not known


@dataclass(frozen=True, slots=True)
class Sent:
    """A message was taken, or why it was not."""

    key: str
    why: str = ""


class AlertChannel(Protocol):
    """Where messages go."""

    name: str  # the same after a restart

    def send(self, notice: AlertNotice) -> None:
        """Send it; raise an EdgeflError where that fails."""
        ...


@dataclass(frozen=True, slots=True)
class AlertEquipment:
    """What alerts are handed."""

    rules: AlertRules
    channels: Mapping[str, AlertChannel]
    looks: Background
    deliveries: Mapping[str, Background]  # one for each channel: one that is slow keeps no other waiting
    look: Callable[[tuple[RunPlace, ...]], Looked]  # called in the background, one call at a time


class AlertService:
    """A part of the server's reactor; its owner hands it facts, events and the time."""

    def __init__(self, equipment: AlertEquipment, rows: RowStore, clock: Clock, fleets: Iterable[str]) -> None:
        self.equipment, self.rows, self.clock = equipment, rows, clock
        self.written = alert_rows.read(rows)  # as it stands on disk
        served = {"", *fleets}
        here = {key: alert for key, alert in self.written.alerts.items() if alert.fleet in served}
        self.state = replace(self.written, alerts=here)
        self.look_at, self.looked = clock.now(), clock.wall()
        self.clocks = clock.now(), clock.wall()
        self.runs: ServerState | None = None  # as it was when the look began
        self.sending: set[str] = set()
        self.full = False

    def deadline(self) -> float:
        """When it wants to be woken."""
        return self.look_at

    def hear(self, fleet: str, fact: Fact) -> None:
        """A fleet tells a fact."""
        self._feed(DeviceFact(self.clock.wall(), fleet, fact))

    def woken(self, runs: ServerState) -> None:
        """Look at runs and disk, if it is time."""
        if self.clock.now() < self.look_at:
            return
        self.look_at = self.clock.now() + LOOK
        if self.runs is None:  # else the look before is still under way
            self.runs = runs
            places = tuple(_place(run, runs) for run in runs.runs.values() if self._is_read(run))
            self.looked = self.clock.wall()
            self.equipment.looks.start(_looking(self.equipment.look, places))

    def handle(self, event: Any) -> None:
        """What comes back from the background."""
        match event:
            case Looked():
                self._looked(event)
            case Sent(key, why):
                self._sent(key, why)
            case Crashed(error):
                raise error

    def quiet(self, id: str, by: str) -> None:
        """A person knows of this alert; raise a ConfigError if there is none, a StoreError if it cannot be written."""
        if not any(alert.id == id for alert in self.state.open):
            raise ConfigError(f"no open alert has the id '{id}'; `edgefl server alerts` shows them")
        before = self.state
        self._feed(AlertQuieted(self.clock.wall(), id, by))
        try:
            self._write()
        except StoreError:
            self.state = before
            raise

    def close(self) -> None:
        """Let go of the background, and write what is not written; what was not sent is sent after the next start."""
        self.equipment.looks.close()
        for background in self.equipment.deliveries.values():
            background.close()
        self._save()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _is_read(self, run: QueuedRun) -> bool:
        """Runs that work, and once more those that have ended since the last look."""
        return not run.deleted and (run.phase == "working" or (run.ended or 0.0) >= self.looked)

    def _feed(self, event: AlertEvent) -> None:
        self.state = alerts.step(self.state, event, self.equipment.rules)

    def _looked(self, event: Looked) -> None:
        wall, runs, self.runs = self.clock.wall(), self.runs, None
        if runs is None:
            return
        stories = {story.name: story for story in event.stories}
        standings = tuple(self._standing(run, stories.get(run.name)) for run in runs.runs.values())
        series = frozenset(_series(run, runs) for run in runs.runs.values() if not run.deleted) | runs.schedules.keys()
        self._feed(RunsLookedAt(wall, standings, series))
        for story in event.stories:
            for scored in story.scored:
                self._feed(scored)
        if event.free is not None:
            self._feed(DiskLookedAt(wall, event.free))
        self._feed(AlertsTicked(wall, self._jumped()))
        self._save()
        self._send()

    def _jumped(self) -> float:
        """By how much the clock on the wall was set since the last call."""
        (now, wall), self.clocks = self.clocks, (self.clock.now(), self.clock.wall())
        jumped = (self.clocks[1] - wall) - (self.clocks[0] - now)
        return jumped if abs(jumped) > JUMP else 0.0

    def _standing(self, run: QueuedRun, story: RunStory | None) -> RunStanding:
        wall = self.clock.wall()
        began = wall - max(0.0, self.clock.now() - run.since)
        moved = max(run.started or run.submitted, story.moved if story else 0.0)
        waiting = story.waiting if story else ""
        return RunStanding(
            run.name,
            run.number,
            run.submission.fleet,
            run.phase,
            run.schedule or run.name,
            moved=run.ended if run.ended is not None else min(moved, wall),
            started=began,
            reason=waiting if run.phase == "working" else run.reason,
            deleted=run.deleted,
        )

    def _sent(self, key: str, why: str) -> None:
        self.sending.discard(key)
        wall, channel = self.clock.wall(), key.partition("/")[0]
        if why:
            first = key in self.state.outbox and not self.state.outbox[key].attempts
            self._feed(NoticeFailed(wall, key))
            lost = "" if key in self.state.outbox else ", it is given up"
            level = WARNING if first or lost else DEBUG
            log.log(level, "an alert was not delivered channel=%s why=%s%s", channel, why, lost)
        else:
            self._feed(NoticeDelivered(wall, key))
        self._save()

    def _save(self) -> None:
        try:
            self._write()
        except StoreError as error:
            log.log(DEBUG if self.full else WARNING, "alerts are not written why=%s", error)
            self.full = True
        else:
            self.full = False

    def _write(self) -> None:
        self.rows.write(alert_rows.changes(self.written, self.state))
        self.written = self.state

    def _send(self) -> None:
        wall = self.clock.wall()
        for key, outgoing in self.state.outbox.items():
            channel = self.equipment.channels.get(outgoing.channel)
            if channel is not None and key not in self.sending and outgoing.due(wall):
                self.sending.add(key)
                self.equipment.deliveries[outgoing.channel].start(_delivery(channel, outgoing))


def _series(run: QueuedRun, runs: ServerState) -> str:
    """Runs of a schedule whose models follow on each other are one series; any other run is one of its own."""
    schedule = runs.schedules.get(run.schedule)
    recurring = schedule.submission.recurring if schedule is not None else None
    return run.schedule if recurring is not None and recurring.from_last else run.name


def _place(run: QueuedRun, runs: ServerState) -> RunPlace:
    return RunPlace(run.name, run.submission.fleet, _series(run, runs), run.submission.folder)


def _looking(look: Callable[[tuple[RunPlace, ...]], Looked], places: tuple[RunPlace, ...]) -> Work:
    return lambda put: put(look(places))


def _delivery(channel: AlertChannel, outgoing: OutgoingNotice) -> Work:
    def work(put: Put) -> None:
        try:
            channel.send(outgoing.notice)
        except EdgeflError as error:
            put(Sent(outgoing.key, str(error)))
        else:
            put(Sent(outgoing.key))

    return work
