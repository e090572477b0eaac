"""The server's shell: it carries out what `decide/runs.py` decides. One event at a time; nothing waits here.

    API, command line ── ServerCall ──┐
    processes ── ProcessEnded ─┼─▶ handle(event) ──▶ step ──▶ rows on disk ──▶ actions performed, facts told
    fleets ── OfFleet ─────────┘

What is decided is written before anything is done about it. While the disk is full, ends of processes and the clock
wait in here, and people are told that nothing can be taken in. Facts stand on disk with a number until their readers
have them: a server that was killed tells them again, and a reader drops the numbers that it has.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from logging import DEBUG, WARNING
from typing import Any

from edgefl.base.errors import ConfigError, EdgeflError, StoreError
from edgefl.base.where import parse
from edgefl.job.config.recurring import DEVICES, NEW_SAMPLES, SAMPLES
from edgefl.server import calendar
from edgefl.server.decide import runs
from edgefl.server.decide.runs import RunSchedule, ServerState
from edgefl.server.decide.vocabulary import (
    Action,
    CoordinatorEnded,
    DeleteFolder,
    Event,
    Fact,
    FolderDeleted,
    PriorityChanged,
    Pruned,
    RequestRefused,
    Restarted,
    RunSubmitted,
    RunWished,
    StartCoordinator,
    StopCoordinator,
    Submission,
    Ticked,
    Wish,
)
from edgefl.server.durable import queue_file
from edgefl.server.durable.rows import RowStore
from edgefl.server.shell.alerts import AlertEquipment, AlertService
from edgefl.server.shell.coordinators import Coordinators, ProcessEnded
from edgefl.server.shell.fleet import FleetService
from edgefl.system.background import Background
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.system.reactor import DeadlineReached

log = logging.getLogger(__name__)

RETRY = 5.0  # seconds between two attempts to write to a full disk
TICK = 300.0  # seconds between two looks at schedules, unless one is due before: the clock on the wall may jump
FACTS, META = "facts", "meta"  # tables: facts that may not have reached their readers; the number of the next one
UNREAD = 200  # facts that are kept for readers


@dataclass(frozen=True, slots=True)
class OfFleet:
    """An event of one fleet's transport or background."""

    fleet: str
    event: Any


@dataclass(frozen=True, slots=True)
class OfAlerts:
    """An event of the backgrounds of alerts."""

    event: Any


@dataclass(frozen=True, slots=True)
class ServerCall:
    """Something to be done in the server's turn, and where the answer goes."""

    call: "Callable[[Server], Any]"
    reply: "Future[Any]"


@dataclass(frozen=True, slots=True)
class FolderGone:
    """The folder of a run was deleted, or could not be."""

    name: str
    error: str = ""


class ServerStopped:
    """A person, or the machine, wants the server to end."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server is handed."""

    clock: Clock
    disk: Disk
    background: Background
    put: Callable[[Any], None]
    coordinators: Coordinators
    delete: Callable[[Submission, str], None]  # the folder of a run; called in the background
    tell: Callable[[int, float, Fact], None] = lambda _sequence, _at, _fact: None
    alerts: AlertEquipment | None = None  # None: no person is told of anything


class Server:
    """All runs of some fleets: a reactor."""

    def __init__(self, around: Surroundings, fleets: Mapping[str, FleetService], *, at_once: int = 2) -> None:
        self.around, self.fleets = around, fleets
        self.clock, self.rows = around.clock, RowStore(around.disk)
        self.state: ServerState = queue_file.read(self.rows, at_once)
        self.sequence = int(self.rows.tables.get(META, {}).get(META, {}).get("sequence", 0))
        self.pending: deque[Event] = deque()
        self.retry_at: float | None = None
        self.full: str | None = None  # why nothing can be written
        self.tick_at = self.clock.now()
        self.ended = False
        self.alerts = AlertService(around.alerts, self.rows, around.clock, fleets) if around.alerts else None

    # ---- the reactor -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for key, row in sorted(self.rows.tables.get(FACTS, {}).items(), key=lambda item: int(item[0])):
            self.around.tell(int(key), float(row["at"]), queue_file.fact_of(row["fact"]))
        self.feed(Restarted(self.clock.now(), self.clock.wall()))
        for fleet in self.fleets.values():
            fleet.start()

    def handle(self, event: Any) -> None:
        match event:
            case OfFleet(fleet, inner):
                self.fleets[fleet].handle(inner)
            case ProcessEnded(name, code, reason):
                self.feed(CoordinatorEnded(self.clock.now(), self.clock.wall(), name, code, reason))
            case FolderGone(name, error):
                if error:
                    log.warning("the folder of a run cannot be deleted run=%s why=%s", name, error)
                else:
                    self.feed(FolderDeleted(self.clock.now(), self.clock.wall(), name))
            case OfAlerts(inner):
                if self.alerts is not None:
                    self.alerts.handle(inner)
            case ServerCall(call, reply):
                _answer(reply, lambda: call(self))
            case DeadlineReached():
                self._woken()
            case ServerStopped():
                self._stop()

    def deadline(self) -> float | None:
        due: list[float | None] = [fleet.deadline() for fleet in self.fleets.values()]
        due += [self.alerts.deadline()] if self.alerts is not None else []
        due += [self.retry_at] if self.pending else [self.tick_at, runs.deadline(self.state)]
        return min((moment for moment in due if moment is not None), default=None)

    def _woken(self) -> None:
        now = self.clock.now()
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
            self._go_on()
        for fleet in self.fleets.values():
            fleet.woken()
        waiting = runs.deadline(self.state)
        if not self.pending and (now >= self.tick_at or (waiting is not None and now >= waiting)):
            event = self._ticked()
            wait = min((due.next - event.wall for due in event.due.values()), default=TICK)
            self.tick_at = now + min(TICK, max(RETRY, wait))
            self.feed(event)
        if self.alerts is not None:
            self.alerts.woken(self.state)

    def _stop(self) -> None:
        """The coordinators end cleanly; what worked is queued again at the next start."""
        self.ended = True
        self.around.coordinators.close()
        self.around.background.close()
        for fleet in self.fleets.values():
            fleet.close()
        if self.alerts is not None:
            self.alerts.close()

    # ---- what people want --------------------------------------------------------------------------------------------

    def submit(self, request: str, submission: Submission, by: str) -> str:
        """Queue a run, or set a schedule; the name. Sent again with the same request, it is not queued again."""
        if submission.fleet not in self.fleets:
            known = ", ".join(sorted(self.fleets)) or "none"
            raise ConfigError(f"this server does not serve fleet '{submission.fleet}'; it serves {known}")
        moment = self.clock.now(), self.clock.wall()
        self._carry_out(RunSubmitted(*moment, request, by, submission))
        self.tick_at = self.clock.now()  # a schedule may be due before the next look
        return self.state.requests.get(request, submission.name)

    def wish(self, name: str, wish: Wish, by: str) -> None:
        """Pause, resume or cancel a run or a schedule."""
        self._carry_out(RunWished(self.clock.now(), self.clock.wall(), name, wish, by))

    def prioritise(self, name: str, priority: int, by: str) -> None:
        """Let a run go before those with a smaller number."""
        self._carry_out(PriorityChanged(self.clock.now(), self.clock.wall(), name, priority, by))

    def prune(self, keep: int, by: str) -> list[str]:
        """Delete the folders of finished runs that no schedule has started, but for the newest; their names."""
        actions = self._carry_out(Pruned(self.clock.now(), self.clock.wall(), keep, by))
        return [action.name for action in actions if isinstance(action, DeleteFolder)]

    def quiet(self, alert: str, by: str) -> None:
        """A person knows of this alert."""
        if self.alerts is None:
            raise ConfigError("this server has no alerts")
        self.alerts.quiet(alert, by)

    def _carry_out(self, event: Event) -> tuple[Action, ...]:
        """Carry out what a person wants, at once or not at all."""
        if self.pending:
            raise StoreError("the server's disk is full: nothing is taken in until there is space")
        actions, facts = self._step(event)
        for fact in facts:
            if isinstance(fact, RequestRefused):
                raise ConfigError(fact.reason)
        return actions

    # ---- the core ----------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """One event into the core, behind those that could not be written."""
        self.pending.append(event)
        if len(self.pending) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self.pending:
            try:
                self._step(self.pending[0])
            except StoreError as error:
                log.log(WARNING if self.full is None else DEBUG, "paused why=%s", error)
                self.full = str(error)
                self.retry_at = self.clock.now() + RETRY
                return
            self.pending.popleft()
            self.full = None

    def _step(self, event: Event) -> tuple[tuple[Action, ...], tuple[Fact, ...]]:
        """Decide, write, perform, tell; a StoreError leaves everything as it was."""
        state, actions, facts = runs.step(self.state, event)
        if state is self.state and not facts and not actions:
            return actions, facts
        first, at = self.sequence + 1, self.clock.wall()
        told = {str(first + place): {"at": at, "fact": queue_file.fact_row(fact)} for place, fact in enumerate(facts)}
        old = {key: None for key in self.rows.tables.get(FACTS, {}) if int(key) <= first - UNREAD}
        meta = {META: {META: {"sequence": self.sequence + len(facts)}}} if facts else {}
        self.rows.write({**queue_file.changes(self.state, state), FACTS: {**old, **told}, **meta})
        self.state, self.sequence = state, self.sequence + len(facts)
        for action in actions:
            self._perform(action)
        for place, fact in enumerate(facts):
            self.around.tell(first + place, at, fact)
        return actions, facts

    def _perform(self, action: Action) -> None:
        run = self.state.runs[action.name]
        match action:
            case StartCoordinator():
                self.around.coordinators.start(action.name, run.submission)
            case StopCoordinator():
                self.around.coordinators.stop(action.name)
            case DeleteFolder():
                self.around.background.start(_deletion(self.around.delete, run.submission, run.name))

    # ---- schedules ---------------------------------------------------------------------------------------------------

    def _ticked(self) -> Ticked:
        wall = self.clock.wall()
        due, unfit = {}, {}
        for name, schedule in self.state.schedules.items():
            if schedule.submission.recurring is not None:
                due[name] = calendar.due(schedule.submission.recurring, wall)
                unfit[name] = self._unfit(schedule)
        samples = {name: fleet.state.samples for name, fleet in self.fleets.items()}
        return Ticked(self.clock.now(), wall, due, unfit, samples)

    def _unfit(self, schedule: RunSchedule) -> str:
        """Why the condition of a schedule does not hold; empty if it does."""
        recurring, fleet = schedule.submission.recurring, self.fleets.get(schedule.submission.fleet)
        if recurring is None or not recurring.when or fleet is None:
            return ""
        samples = fleet.state.samples
        figures: dict[str, str | float | bool] = {
            SAMPLES: samples,
            NEW_SAMPLES: max(0, samples - schedule.samples),
            DEVICES: len(fleet.state.online),
        }
        condition = parse(recurring.when)
        if condition.matches(figures):
            return ""
        told = ", ".join(f"{name} = {figures[name]:g}" for name in sorted(condition.names()))
        return f"{recurring.when} does not hold: {told}"


def _answer(reply: "Future[Any]", call: Callable[[], Any]) -> None:
    """Carry out what was asked, and hand over the result or the error."""
    if not reply.set_running_or_notify_cancel():
        return
    try:
        reply.set_result(call())
    except EdgeflError as error:
        reply.set_exception(error)
    except Exception as error:  # a bug of ours: who asked hears of it, and the server goes on
        log.exception("a request could not be carried out")
        reply.set_exception(error)


def _deletion(delete: Callable[[Submission, str], None], submission: Submission, name: str) -> Callable[[Any], None]:
    def work(put: Callable[[Any], None]) -> None:
        try:
            delete(submission, name)
        except (OSError, EdgeflError) as error:
            put(FolderGone(name, str(error)))
        else:
            put(FolderGone(name))

    return work
