"""The queue of one fleet, as its page shows it: runs that work and wait, how far they are, schedules, the last ends.

It is made when a browser asks, at most every PACE seconds. Streams of browsers are woken when a run or a schedule
changes; how far a run has come is looked up at each turn of a stream.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any, Protocol, TypeVar

from edgefl.server import calendar
from edgefl.server.decide.runs import QueuedRun, ServerState
from edgefl.server.http.models import run_info, schedule_info
from edgefl.server.run_progress import progress_of
from edgefl.server.shell.service import Server
from edgefl.system.clock import Clock
from edgefl.watch.page.feed import FeedListener
from edgefl.watch.page.stream import dumps

T = TypeVar("T")

PACE = 1.0  # seconds for which one answer serves all who ask
ENDED = 40  # runs of a fleet that are shown after their end, the last ones


class QueueSource(Protocol):
    """What it needs of the server around it."""

    @property
    def clock(self) -> Clock: ...

    def ask(self, call: Callable[[Server], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class _Kept:
    text: str
    version: int
    until: float


class QueueFeed:
    """The queue of each fleet as JSON; threads of the page ask, the server's thread says that it has changed."""

    def __init__(self, around: QueueSource) -> None:
        self._around, self._lock = around, Lock()
        self._listeners: set[FeedListener] = set()
        self._kept: dict[str, _Kept] = {}
        self._version = 0

    def changed(self) -> None:
        """Wake the streams of all browsers: a run or a schedule has changed."""
        self._version += 1
        for listener in tuple(self._listeners):
            listener.ring()

    def join(self, listener: FeedListener) -> None:
        """Wake this listener from now on."""
        self._listeners.add(listener)

    def leave(self, listener: FeedListener) -> None:
        """Wake it no more."""
        self._listeners.discard(listener)

    def text(self, fleet: str) -> str:
        """Return the queue of a fleet as one line of JSON; it waits for the server's turn, so not in an event loop."""
        with self._lock:
            kept, version = self._kept.get(fleet), self._version
            if kept is not None and kept.version == version and time.monotonic() < kept.until:
                return kept.text
            state = self._around.ask(lambda server: server.state)
            text = dumps(queue_of(fleet, state, self._around.clock.wall()))
            self._kept[fleet] = _Kept(text, version, time.monotonic() + PACE)
            return text


def queue_of(fleet: str, state: ServerState, wall: float) -> dict[str, Any]:
    """Return what the page shows of the runs and schedules of a fleet."""
    runs = [run for run in state.runs.values() if run.submission.fleet == fleet]
    here = sorted((run for run in runs if not run.over), key=lambda run: run.number)
    ended = sorted((run for run in runs if run.over), key=lambda run: run.ended or 0.0)[-ENDED:]
    schedules = [one for _, one in sorted(state.schedules.items()) if one.submission.fleet == fleet]
    due = {one.name: calendar.due(one.submission.recurring, wall).next for one in schedules if one.submission.recurring}
    return {
        "at_once": state.at_once,
        "runs": [_run(run, state) for run in [*here, *reversed(ended)]],
        "ended": sum(run.over for run in runs),
        "schedules": [schedule_info(one, state, due.get(one.name)).model_dump(mode="json") for one in schedules],
    }


def _run(run: QueuedRun, state: ServerState) -> dict[str, Any]:
    shown = run_info(run, state).model_dump(mode="json")
    begun = run.started is not None and not run.over
    return {**shown, "progress": asdict(progress_of(run.submission, run.name)) if begun else None}
