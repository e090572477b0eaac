"""Bugs that are put into the server's code on purpose: lives that do not find them would not find others either."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from edgefl.base.errors import StoreError
from edgefl.base.records import replace
from edgefl.server.decide import runs
from edgefl.server.decide.runs import ServerState, _Turn
from edgefl.server.durable import queue_file
from edgefl.server.durable.rows import RowStore
from edgefl.server.shell.service import Server
from tools.failing_disk import FailingDisk

Change = tuple[Any, str, Callable[..., Any]]  # whose, which function, and what stands in its place


def _rows_not_synced() -> Change:
    append = FailingDisk.append

    def unsynced(self: FailingDisk, name: str, *parts: Any) -> None:
        with patch.object(FailingDisk, "_sync", lambda *_: None):
            append(self, name, *parts)

    return FailingDisk, "append", unsynced


def _full_disk_ignored() -> Change:
    write = RowStore.write

    def careless(self: RowStore, changes: Any) -> None:
        try:
            write(self, changes)
        except StoreError:
            return

    return RowStore, "write", careless


def _requests_forgotten() -> Change:
    changes = queue_file.changes

    def forgetful(before: ServerState, after: ServerState) -> Any:
        return changes(replace(before, requests={}), replace(after, requests={}))

    return queue_file, "changes", forgetful


def _request_counts_each_time() -> Change:
    submitted = _Turn._submitted

    def each_time(self: _Turn, event: Any) -> None:
        if event.submission.recurring is None and event.request in self.state.requests:
            event = replace(event, request=f"{event.request}+", submission=replace(event.submission, name="again"))
        submitted(self, event)

    return _Turn, "_submitted", each_time


def _restart_forgets_what_worked() -> Change:
    def nothing(self: _Turn) -> None:
        """What worked is taken to work still."""

    return _Turn, "_restarted", nothing


def _moment_of_another_clock() -> Change:
    restarted = _Turn._restarted

    def kept(self: _Turn) -> None:
        times = {run.name: run.again_at for run in self.state.runs.values()}
        restarted(self)
        for run in tuple(self.state.runs.values()):
            if run.phase == "queued" and times[run.name] is not None:
                self._put(replace(run, again_at=(times[run.name] or 0.0) + 1e6))

    return _Turn, "_restarted", kept


def _pause_is_forgotten() -> Change:
    stopped = _Turn._stopped

    def forgetful(self: _Turn, run: Any, wall: float | None = None) -> None:
        stopped(self, replace(run, wish="resume") if run.wish == "pause" else run, wall)

    return _Turn, "_stopped", forgetful


def _cancelled_is_queued_again() -> Change:
    stopped = _Turn._stopped

    def again(self: _Turn, run: Any, wall: float | None = None) -> None:
        stopped(self, replace(run, wish="resume") if run.wish == "cancel" else run, wall)

    return _Turn, "_stopped", again


def _one_too_many() -> Change:
    dispatch = _Turn.dispatch

    def greedy(self: _Turn, now: float, wall: float) -> None:
        bound = self.state.at_once
        self.state = replace(self.state, at_once=bound + 1)
        dispatch(self, now, wall)
        self.state = replace(self.state, at_once=bound)

    return _Turn, "dispatch", greedy


def _last_in_first_out() -> Change:
    def waiting(self: ServerState) -> Any:
        return sorted((run for run in self.runs.values() if run.phase == "queued"), key=lambda run: -run.number)

    return ServerState, "waiting", property(waiting)  # type: ignore[return-value]  # what stands there is one


def _no_backoff_ends() -> Change:
    return runs, "deadline", lambda _state: None


def _missed_nights_all_at_once() -> Change:
    due = _Turn._due

    def hasty(self: _Turn, event: Any, name: str, moment: Any) -> None:
        due(self, event, name, moment)
        if (schedule := self.state.schedules.get(name)) and schedule.last_due == moment.last:
            self._put_schedule(replace(schedule, last_due=moment.last - 1.0))

    return _Turn, "_due", hasty


def _two_of_a_schedule() -> Change:
    runs_of = ServerState.runs_of

    def ended(self: ServerState, schedule: str) -> Any:
        return [run for run in runs_of(self, schedule) if run.over]

    return ServerState, "runs_of", ended


def _stuck_in_the_future() -> Change:
    due = _Turn._due

    def stuck(self: _Turn, event: Any, name: str, moment: Any) -> None:
        due(self, event, name, replace(moment, next=1e18))

    return _Turn, "_due", stuck


def _newest_are_deleted() -> Change:
    prune = _Turn._prune

    def wrong_end(self: _Turn, all_runs: Any, keep: int) -> None:
        prune(self, list(reversed(list(all_runs))), keep)

    return _Turn, "_prune", wrong_end


def _nothing_is_deleted() -> Change:
    return _Turn, "_keep", lambda *_: None


def _numbers_used_again() -> Change:
    init = Server.__init__

    def forgetful(self: Server, *about: Any, **more: Any) -> None:
        init(self, *about, **more)
        self.sequence = 0

    return Server, "__init__", forgetful


def _facts_told_once() -> Change:
    start = Server.start

    def silent(self: Server) -> None:
        tell = self.around.tell
        object.__setattr__(self.around, "tell", lambda *_: None)
        start(self)
        object.__setattr__(self.around, "tell", tell)

    return Server, "start", silent


def _finished_is_tried_again() -> Change:
    return runs, "FINISHED", frozenset({3})  # type: ignore[return-value]  # what stands there is no function


def _given_up_too_soon() -> Change:
    again = _Turn._again

    def impatient(self: _Turn, run: Any, event: Any) -> None:
        self._change(run, "failed", reason="it ended", ended=event.wall) if run.failures else again(self, run, event)

    return _Turn, "_again", impatient


BUGS: Mapping[str, tuple[str, Callable[[], Change]]] = {
    "rows-not-synced": ("what the server knows is not synced", _rows_not_synced),
    "full-disk-ignored": ("what a full disk does not take is forgotten", _full_disk_ignored),
    "requests-forgotten": ("requests that were carried out are not written down", _requests_forgotten),
    "request-counts-each-time": ("a request that is sent again queues another run", _request_counts_each_time),
    "restart-forgets-what-worked": ("after a restart what worked is not started again", _restart_forgets_what_worked),
    "moment-of-another-clock": ("a wait outlives the clock that it was measured by", _moment_of_another_clock),
    "pause-is-forgotten": ("a run that was to pause is queued again", _pause_is_forgotten),
    "cancelled-is-queued-again": ("a run that was to end is queued again", _cancelled_is_queued_again),
    "one-too-many": ("one coordinator more than allowed works", _one_too_many),
    "last-in-first-out": ("the run that was submitted last goes first", _last_in_first_out),
    "no-backoff-ends": ("a run that ended by itself is not started again in time", _no_backoff_ends),
    "missed-nights-again-and-again": ("a time that was seen to is seen to again", _missed_nights_all_at_once),
    "two-of-a-schedule": ("a schedule starts a run beside one that is not ended", _two_of_a_schedule),
    "stuck-in-the-future": ("a clock that stood ahead ends a schedule", _stuck_in_the_future),
    "newest-are-deleted": ("of a schedule's runs the newest are deleted", _newest_are_deleted),
    "nothing-is-deleted": ("folders of old runs stay", _nothing_is_deleted),
    "numbers-used-again": ("facts after a restart have the numbers of others", _numbers_used_again),
    "facts-told-once": ("a fact that did not reach its readers before a kill is lost", _facts_told_once),
    "finished-is-tried-again": ("a run that has finished is started again", _finished_is_tried_again),
    "given-up-too-soon": ("a run is given up at its second end", _given_up_too_soon),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within the block the program has this bug."""
    whose, which, instead = BUGS[name][1]()
    with patch.object(whose, which, instead):
        yield
