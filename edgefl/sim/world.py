"""A world in one thread: processes that react to events, on a heap of virtual times.

    heap ──▶ the earliest happening ──▶ process ──▶ shell.handle(event) ──▶ messages, slow work, a deadline ──▶ heap

Nothing here waits: the clock jumps from one happening to the next, and those of the same moment come in the order in
which they were arranged. So what a world does depends on what was put into it, and on nothing else. The shells are
the real ones; what they are handed (clock, background, transport) is virtual.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from math import inf
from typing import Any, TypeAlias

from edgefl.base.errors import EdgeflError
from edgefl.system.background import Crashed, Work
from edgefl.system.reactor import DeadlineReached, Reactor
from edgefl.wire.transport import Transport
from edgefl.wire.wiring import Wiring

RESTLESS = 10_000  # times that a shell may be woken in one moment before it is said to be mad

Happening: TypeAlias = Callable[[], None]
Watch: TypeAlias = Callable[["Process", Any], None]
Seconds: TypeAlias = Callable[[Sequence[Any]], float]


def _nothing() -> None:
    pass


class World:
    """Virtual time, and what is going to happen."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.now = 0.0
        self.watch = watch  # hears of every event after a process has handled it
        self._heap: list[tuple[float, int, Happening]] = []
        self._numbers = count()

    def later(self, seconds: float, happening: Happening) -> None:
        """Let it happen this number of seconds from now, after all that was arranged for that moment before."""
        self.at(self.now + seconds, happening)

    def at(self, moment: float, happening: Happening) -> None:
        """Let it happen at this moment, or now if that has passed."""
        heapq.heappush(self._heap, (max(moment, self.now), next(self._numbers), happening))

    def next(self) -> bool:
        """Let the next thing happen; False if nothing will ever again."""
        if not self._heap:
            return False
        self.now, _, happening = heapq.heappop(self._heap)
        happening()
        return True

    def run(self, *, until: Callable[[], bool] = lambda: False, limit: float | None = None) -> bool:
        """Go on until it is so, or nothing happens any more, or the limit of virtual time is reached: is it so?"""
        while not until():
            if limit is not None and not (self._heap and self._heap[0][0] <= limit):
                self.now = max(self.now, limit)
                return False
            if not self.next():
                return False
        return True

    def process(self, name: str) -> "Process":
        """A new process, on a machine whose clock is right."""
        return Process(self, name, VirtualClock(self))


class VirtualClock:
    """The world's time; the wall clock of a machine may be set to another one."""

    def __init__(self, world: World, ahead: float = 0.0) -> None:
        self._world = world
        self.ahead = ahead  # seconds that the clock on the wall is fast

    def now(self) -> float:
        return self._world.now

    def wall(self) -> float:
        return self._world.now + self.ahead

    def jump(self, seconds: float) -> None:
        """Set the wall clock; the monotonic clock goes on as before."""
        self.ahead += seconds


class Process:
    """One life of a shell. When it is killed, all that was on its way to it is gone; a new life is a new process."""

    def __init__(self, world: World, name: str, clock: VirtualClock) -> None:
        self.world, self.name, self.clock = world, name, clock
        self.alive = True
        self.at_death: list[Callable[[bool], None]] = []  # what else is gone with it: its connections
        self._shell: Reactor | None = None
        self._at_end: Happening = _nothing
        self._wake_at: float | None = None
        self._woken = (0.0, 0)  # when last, and how often then

    def put(self, event: Any) -> None:
        """The way into the queue of this process: it is handled in this moment, after what came before it."""
        self.world.later(0.0, partial(self.handle, event))

    def run(self, shell: Reactor, at_end: Happening = _nothing) -> None:
        """Start the shell; when it has ended of its own accord, `at_end` cleans up behind it."""
        self._shell, self._at_end = shell, at_end
        shell.start()
        self._look()

    def kill(self, *, silent: bool = False) -> None:
        """The process dies in this moment, without a word; or with its machine, which is silent too."""
        self.alive = False
        for gone in self.at_death:
            gone(silent)

    def handle(self, event: Any) -> None:
        """Hand the event over now, unless the process has ended."""
        if not self.alive or self._shell is None:
            return
        self._shell.handle(event)
        if self.world.watch is not None:
            self.world.watch(self, event)
        self._look()

    def background(self, seconds: Seconds, executor: Executor | None = None) -> "VirtualBackground":
        """Return a worker for this process."""
        return VirtualBackground(self, seconds, executor)

    def wiring(self, transport: Transport, seconds: Seconds, executor: Executor | None = None) -> Wiring:
        """Return what a shell in this process needs of its world; `seconds` says how long its slow work takes."""
        return Wiring(transport, self.clock, self.background(seconds, executor), self.put)

    def _look(self) -> None:
        """Arrange to be woken; one wake that comes too early costs less than to take it back."""
        if self._shell is None or not self.alive:
            return
        if self._shell.ended:
            self.alive = False
            self._at_end()
            return
        deadline = self._shell.deadline()
        if deadline is not None and (self._wake_at is None or deadline < self._wake_at):
            self._wake_at = max(deadline, self.world.now)
            self.world.at(deadline, partial(self._wake, self._wake_at))

    def _wake(self, arranged: float) -> None:
        if arranged != self._wake_at or self._shell is None or not self.alive:
            return  # another one was arranged for earlier
        self._wake_at = None
        deadline = self._shell.deadline()
        if deadline is None or deadline > self.world.now:
            self._look()
            return
        when, times = self._woken
        self._woken = self.world.now, times + 1 if when == self.world.now else 1
        if self._woken[1] > RESTLESS:
            raise EdgeflError(f"{self.name} asks to be woken again and again at {self.world.now:g} virtual seconds")
        self.handle(DeadlineReached())


class VirtualBackground:
    """Work is done at once, and told of when its time has come: `seconds` says how long it took, by what it has put.

    With an executor the work of several processes, begun in the same moment, is done at the same time. What takes for
    ever never comes, and nothing after it.
    """

    def __init__(self, process: Process, seconds: Seconds, executor: Executor | None = None) -> None:
        self._process, self._seconds, self._executor = process, seconds, executor
        self._waiting: deque[Work] = deque()
        self._busy = self._closed = False
        self._number = 0  # of the work in hand: what comes of another one is not told

    def start(self, work: Work) -> None:
        if not self._closed:
            self._waiting.append(work)
            self._begin()

    def cancel(self) -> None:
        self._waiting.clear()
        self._number += 1
        self._busy = False

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    def _begin(self) -> None:
        if self._waiting and not self._busy and not self._closed:
            self._busy, work = True, self._waiting.popleft()
            done = partial(_events, work) if self._executor is None else self._executor.submit(_events, work).result
            # After all that is begun in this moment, so that an executor may be at all of it.
            self._process.world.later(0.0, partial(self._done, self._number, done))

    def _done(self, number: int, done: Callable[[], list[Any]]) -> None:
        if number != self._number or not self._process.alive:
            return
        events = done()
        seconds = self._seconds(events)
        if seconds != inf:
            self._process.world.later(seconds, partial(self._tell, number, events))

    def _tell(self, number: int, events: list[Any]) -> None:
        if number != self._number:
            return
        for event in events:
            self._process.put(event)
        self._busy = False
        self._begin()


def _events(work: Work) -> list[Any]:
    events: list[Any] = []
    try:
        work(events.append)
    except Exception as error:  # noqa: BLE001 - handed to the owner's loop, which raises it
        events.append(Crashed(error))
    return events
