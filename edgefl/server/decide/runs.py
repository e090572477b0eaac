"""Which runs work, which wait, and what becomes of schedules. Pure: `step(state, event) -> state, actions, facts`.

    submitted ──▶ queued ──▶ working ──▶ finished
                    ▲  ▲        │  └───▶ failed       (exit code 2, or FAILURES in a row)
                    │  └────────┤ it ended by itself: again after a while
                    │           ▼
      resume ◀── paused ◀── stopping ──▶ cancelled    (from queued and paused at once)

At most `at_once` coordinators work; of those that wait, the highest priority goes first, then the one that was
submitted first. A schedule starts a run of its own for each time that is due; it never has two that are not ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgefl.base.records import replace
from edgefl.server.decide.vocabulary import (
    ENDED,
    Action,
    CoordinatorEnded,
    DeleteFolder,
    Due,
    Event,
    Fact,
    FolderDeleted,
    Phase,
    PriorityChanged,
    Pruned,
    RequestRefused,
    Restarted,
    RunChanged,
    RunSubmitted,
    RunWished,
    ScheduleChanged,
    StartCoordinator,
    StopCoordinator,
    Submission,
    Ticked,
    Wish,
)

FAILURES = 5  # ends in a row, each soon after its start, after which a run is not started again
SOON = 600.0  # seconds of work after which an end is no longer one in a row
FIRST_WAIT, LONGEST_WAIT = 10.0, 600.0  # seconds before a run that ended by itself is started again
LATE = 120.0  # seconds after which a time that is due counts as missed
REQUESTS = 1000  # of the last submissions, whose repetition is recognised
HISTORY = 5000  # runs that have ended and are remembered
FINISHED = frozenset({0, 3})  # exit codes: it has finished, now or before
WRONG_FILE = 2


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that was submitted, until it is forgotten long after its end."""

    name: str
    number: int  # grows with every submission
    submission: Submission
    by: str
    phase: Phase
    submitted: float
    schedule: str = ""  # which started it
    wish: Wish | None = None  # what a person wants while it stops
    priority: int = 0
    reason: str = ""
    started: float | None = None  # on the wall: first
    ended: float | None = None
    since: float = 0.0  # on this life's clock: when it began to work
    again_at: float | None = None  # on this life's clock: not before
    failures: int = 0  # ends in a row
    deleted: bool = False  # its folder

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in ENDED


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """A run file that is started again and again."""

    name: str
    submission: Submission
    by: str
    last_due: float  # on the wall: the last time that was seen to
    count: int = 0  # runs it has started
    paused: bool = False
    samples: int = 0  # of its fleet when it last started a run


@dataclass(frozen=True, slots=True)
class ServerState:
    """All runs and schedules of a server."""

    at_once: int = 2
    next_number: int = 1
    runs: Mapping[str, QueuedRun] = field(default_factory=dict)
    schedules: Mapping[str, RunSchedule] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)  # of submissions: the name that each made

    @property
    def working(self) -> list[QueuedRun]:
        """Runs whose coordinator is there."""
        return [run for run in self.runs.values() if run.phase in ("working", "stopping")]

    @property
    def waiting(self) -> list[QueuedRun]:
        """Runs that will work, in the order in which they will."""
        queued = [run for run in self.runs.values() if run.phase == "queued"]
        return sorted(queued, key=lambda run: (-run.priority, run.number))

    def runs_of(self, schedule: str) -> list[QueuedRun]:
        """What a schedule has started, in that order."""
        return sorted((run for run in self.runs.values() if run.schedule == schedule), key=lambda run: run.number)

    def last_finished(self, schedule: str) -> str | None:
        """The newest run of a schedule that has a model to begin with."""
        done = [run for run in self.runs_of(schedule) if run.phase == "finished" and not run.deleted]
        return done[-1].name if done else None


def step(state: ServerState, event: Event) -> tuple[ServerState, tuple[Action, ...], tuple[Fact, ...]]:
    """Return what follows from this event."""
    turn = _Turn(state)
    turn.take(event)
    turn.dispatch(event.now, event.wall)
    return turn.state, tuple(turn.actions), tuple(turn.facts)


def deadline(state: ServerState) -> float | None:
    """When, on this life's clock, a run that ended by itself may be started again."""
    if len(state.working) >= state.at_once:
        return None
    return min((run.again_at for run in state.waiting if run.again_at is not None), default=None)


class _Turn:
    """One event's consequences, as they are gathered."""

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.actions: list[Action] = []
        self.facts: list[Fact] = []

    def take(self, event: Event) -> None:  # noqa: C901  one event, one case
        match event:
            case Restarted():
                self._restarted()
            case RunSubmitted():
                self._submitted(event)
            case RunWished():
                self._wished(event)
            case PriorityChanged(name=name, priority=priority):
                if run := self._open_run(event):
                    self._put(replace(run, priority=priority))
                    self._tell(self.state.runs[name], f"priority {priority}", event.by)
            case CoordinatorEnded():
                self._ended(event)
            case FolderDeleted(name=name):
                if run := self.state.runs.get(name):
                    self._put(replace(run, deleted=True))
                    self.facts.append(RunChanged(name, run.submission.fleet, "deleted"))
            case Pruned(keep=keep):
                self._prune(self.state.runs_of(""), keep)
            case Ticked():
                for name, due in event.due.items():
                    self._due(event, name, due)

    def dispatch(self, now: float, wall: float) -> None:
        """Start what may work now."""
        for run in self.state.waiting:
            if len(self.state.working) >= self.state.at_once:
                return
            if run.again_at is None or run.again_at <= now:
                begun = replace(
                    run, phase="working", since=now, again_at=None, started=run.started or wall, reason="", wish=None
                )
                self._put(begun)
                self.actions.append(StartCoordinator(run.name))
                self._tell(begun)

    # ---- what happened -----------------------------------------------------------------------------------------

    def _restarted(self) -> None:
        """No coordinator has survived: what worked is queued again, what was to stop has stopped."""
        for run in tuple(self.state.runs.values()):
            if run.phase == "working":
                self._put(replace(run, phase="queued", again_at=None, since=0.0))
            elif run.phase == "stopping":
                self._stopped(run)
            elif run.phase == "queued" and run.again_at is not None:
                self._put(replace(run, again_at=None))  # that was a moment of another life's clock

    def _submitted(self, event: RunSubmitted) -> None:
        submission, name = event.submission, event.submission.name
        if event.request in self.state.requests:  # it was sent again, because the answer was lost
            return
        before = self.state.runs.get(name)
        if submission.recurring is not None:
            if before and not before.over:
                self._refuse(event, f"a run '{name}' is {before.phase}: give the schedule another run.name")
                return
            self._set_schedule(event)
        elif name in self.state.schedules:
            self._refuse(event, f"'{name}' is a schedule: give the run another run.name")
            return
        elif before and not (before.over and before.deleted):
            how = "it is kept" if before.over else f"it is {before.phase}"
            self._refuse(event, f"there is a run '{name}' already, {how}: give this one another run.name")
            return
        else:
            self._queue(submission, event.by, event.wall, request=event.request)
        requests = {**self.state.requests, event.request: name}
        self.state = replace(self.state, requests=dict([*requests.items()][-REQUESTS:]))

    def _set_schedule(self, event: RunSubmitted) -> None:
        submission = event.submission
        before = self.state.schedules.get(submission.name)
        if before:
            after = replace(before, submission=submission, by=event.by, paused=False)
        else:
            after = RunSchedule(submission.name, submission, event.by, last_due=event.wall)
        self._put_schedule(after)
        what = ScheduleChanged(
            submission.name, submission.fleet, "set", submission.recurring.cron if submission.recurring else ""
        )
        self.facts.append(replace(what, by=event.by, request=event.request))

    def _queue(self, submission: Submission, by: str, wall: float, *, schedule: str = "", request: str = "") -> None:
        number = self.state.next_number
        run = QueuedRun(
            submission.name, number, submission, by, "queued", wall, schedule=schedule, priority=submission.priority
        )
        self.state = replace(self.state, next_number=number + 1)
        self._put(run)
        self.facts.append(RunChanged(run.name, submission.fleet, "queued", by=by, request=request))

    def _wished(self, event: RunWished) -> None:
        if event.name in self.state.schedules and event.name not in self.state.runs:
            self._wished_of_schedule(event)
        elif run := self._open_run(event):
            match event.wish, run.phase:
                case "resume", "paused":
                    self._change(run, "queued", event.by, failures=0, again_at=None)
                case "resume", "stopping" if run.wish == "pause":
                    self._put(replace(run, wish="resume"))  # it is queued again when it has stopped
                case "resume", "queued" if run.again_at is not None:
                    self._put(replace(run, again_at=None, failures=0))
                case "pause", "queued":
                    self._change(run, "paused", event.by)
                case "cancel", "queued" | "paused":
                    self._change(run, "cancelled", event.by, ended=event.wall)
                case "pause" | "cancel", "working":
                    self._change(run, "stopping", event.by, wish=event.wish)
                    self.actions.append(StopCoordinator(run.name))
                case "pause" | "cancel", "stopping" if run.wish != "cancel":
                    self._put(replace(run, wish=event.wish))

    def _wished_of_schedule(self, event: RunWished) -> None:
        schedule = self.state.schedules[event.name]
        fleet = schedule.submission.fleet
        if event.wish == "cancel":
            others = {name: one for name, one in self.state.schedules.items() if name != event.name}
            self.state = replace(self.state, schedules=others)
            self.facts.append(ScheduleChanged(event.name, fleet, "removed", by=event.by))
        else:
            paused = event.wish == "pause"
            if not paused and schedule.paused:
                schedule = replace(schedule, last_due=max(schedule.last_due, event.wall))  # nothing was missed
            self._put_schedule(replace(schedule, paused=paused))
            self.facts.append(ScheduleChanged(event.name, fleet, "paused" if paused else "resumed", by=event.by))

    def _ended(self, event: CoordinatorEnded) -> None:
        run = self.state.runs.get(event.name)
        if run is None or run.phase not in ("working", "stopping"):
            return
        if event.code in FINISHED:  # even if a person wanted it to stop: there is nothing left to stop
            self._change(run, "finished", ended=event.wall, wish=None, failures=0)
            self._keep(run)
        elif run.phase == "stopping":
            self._stopped(run, event.wall)
        elif event.code == WRONG_FILE:
            self._change(run, "failed", reason=event.reason or "its run file is wrong", ended=event.wall)
        else:
            self._again(run, event)

    def _stopped(self, run: QueuedRun, wall: float | None = None) -> None:
        """A coordinator has stopped because a person wanted it."""
        match run.wish:
            case "cancel":
                self._change(run, "cancelled", wish=None, ended=wall)
            case "resume":
                self._change(run, "queued", wish=None, again_at=None)
            case _:
                self._change(run, "paused", wish=None)

    def _again(self, run: QueuedRun, event: CoordinatorEnded) -> None:
        failures = 1 if event.now - run.since > SOON else run.failures + 1
        reason = event.reason or f"its coordinator ended with code {event.code}"
        if failures >= FAILURES:
            self._change(run, "failed", reason=f"{reason} ({failures} times in a row)", ended=event.wall)
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (failures - 1))
        self._change(run, "queued", reason=reason, failures=failures, again_at=event.now + wait)

    def _due(self, event: Ticked, name: str, due: Due) -> None:
        """See to the time that has passed, if there is one."""
        schedule = self.state.schedules.get(name)
        if schedule is None or schedule.paused:
            return
        if schedule.last_due > due.next:  # the clock was wrong, and stood years ahead
            self._put_schedule(replace(schedule, last_due=due.last))
            self._tell_schedule(schedule, "clock", "the clock was set back: times count from now")
            return
        if due.last <= schedule.last_due:
            return
        schedule = replace(schedule, last_due=due.last)
        self._put_schedule(schedule)
        recurring, late = schedule.submission.recurring, event.wall - due.last > LATE
        open_run = next((run for run in self.state.runs_of(name) if not run.over), None)
        if late and recurring is not None and recurring.missed == "skip":
            self._tell_schedule(schedule, "skipped", "the time passed while the server was away")
        elif open_run is not None:
            self._tell_schedule(schedule, "skipped", f"run '{open_run.name}' is {open_run.phase}")
        elif why := event.unfit.get(name):
            self._tell_schedule(schedule, "skipped", why)
        else:
            self._fire(schedule, event)

    def _fire(self, schedule: RunSchedule, event: Ticked) -> None:
        submission, count = schedule.submission, schedule.count + 1
        while f"{schedule.name}-{count}" in self.state.runs:
            count += 1
        name = f"{schedule.name}-{count}"
        sets = [f"run.name={name}"]
        last = self.state.last_finished(schedule.name)
        if submission.recurring is not None and submission.recurring.from_last and last:
            sets.append(f"run.from={last}")
        samples = event.samples.get(submission.fleet, 0)
        self._put_schedule(replace(schedule, count=count, samples=samples))
        one = replace(submission, name=name, sets=(*submission.sets, *sets), recurring=None)
        self._tell_schedule(schedule, "fired", name)
        self._queue(one, schedule.by, event.wall, schedule=schedule.name)

    # ---- what is kept ------------------------------------------------------------------------------------------

    def _keep(self, run: QueuedRun) -> None:
        """A run has finished: of its schedule's, the oldest go."""
        if run.schedule:
            self._prune(self.state.runs_of(run.schedule), run.submission.keep)
        over = sorted((one for one in self.state.runs.values() if one.over and one.deleted), key=lambda one: one.number)
        if len(over) > HISTORY:
            gone = {one.name for one in over[: len(over) - HISTORY]}
            self.state = replace(
                self.state, runs={name: one for name, one in self.state.runs.items() if name not in gone}
            )

    def _prune(self, runs: Iterable[QueuedRun], keep: int) -> None:
        """Delete the folders of all ended runs but the newest `keep`; the newest model of a schedule always stays."""
        over = [run for run in runs if run.over and not run.deleted]
        for run in over[: max(0, len(over) - keep)]:
            if not (run.schedule and run.name == self.state.last_finished(run.schedule)):
                self.actions.append(DeleteFolder(run.name))

    # ---- inside ------------------------------------------------------------------------------------------------

    def _open_run(self, event: RunWished | PriorityChanged) -> QueuedRun | None:
        """The run that a person speaks of, if it has not ended."""
        run = self.state.runs.get(event.name)
        if run is not None and not run.over:
            return run
        why = f"run '{event.name}' is {run.phase}" if run else f"there is no run '{event.name}' here"
        self.facts.append(RequestRefused(event.name, run.submission.fleet if run else "", why, event.by))
        return None

    def _refuse(self, event: RunSubmitted, why: str) -> None:
        submission = event.submission
        self.facts.append(RequestRefused(submission.name, submission.fleet, why, event.by, event.request))

    def _put(self, run: QueuedRun) -> None:
        self.state = replace(self.state, runs={**self.state.runs, run.name: run})

    def _put_schedule(self, schedule: RunSchedule) -> None:
        self.state = replace(self.state, schedules={**self.state.schedules, schedule.name: schedule})

    def _change(self, run: QueuedRun, phase: Phase, by: str = "", *, reason: str = "", **changes: object) -> None:
        after = replace(run, phase=phase, reason=reason, **changes)
        self._put(after)
        self._tell(after, reason, by)

    def _tell(self, run: QueuedRun, reason: str = "", by: str = "") -> None:
        self.facts.append(RunChanged(run.name, run.submission.fleet, run.phase, reason, by))

    def _tell_schedule(self, schedule: RunSchedule, what: str, reason: str) -> None:
        self.facts.append(ScheduleChanged(schedule.name, schedule.submission.fleet, what, reason))  # type: ignore[arg-type]  # one of its words
