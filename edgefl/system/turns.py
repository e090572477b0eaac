"""A shell whose events are carried out by the thread that brings them, one after another: no thread is woken.

`reactor.serve` has a thread that waits for events. Where each round brings a few small ones, from the network and back
from the training, to wake it costs as much as what it does then. Here the thread that brings an event takes the turn,
if it is free, and does what follows; otherwise it leaves the event to the thread that has the turn. So still one thing
happens at a time, in the order in which it was brought. The thread that serves sleeps until the shell's deadline, or
its end.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from edgefl.system.clock import Clock
from edgefl.system.reactor import LONGEST, DeadlineReached, Reactor


class Turns:
    """The events of one shell. What it does in its turn must neither wait for another thread nor take long."""

    def __init__(self, clock: Clock, beat: Callable[[], None] = lambda: None, every: float | None = None) -> None:
        """Call `beat` after each turn of the shell, and at least once in `every` seconds if that is given."""
        self._clock = clock
        self._beat, self._every = beat, inf if every is None else every
        self._events: deque[Any] = deque()
        self._turn = Lock()
        self._shell: Reactor | None = None  # while it is served
        self._error: BaseException | None = None
        self._due = inf  # when the serving thread looks again by itself,
        self._asleep = False  # if it does nothing else
        self._bell: SimpleQueue[None] = SimpleQueue()  # unlike an Event it may be rung by a signal handler

    def put(self, event: Any) -> None:
        """Queue an event, and carry it out here and now unless another thread has the turn."""
        self._events.append(event)
        self._take_turns()

    def post(self, event: Any) -> None:
        """The same for a signal handler, which must do nothing itself: the serving thread will."""
        self._events.append(event)
        self._bell.put(None)

    def rest(self) -> list[Any]:
        """What came too late to be taken in."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def serve(self, shell: Reactor) -> None:
        """Until the shell has ended; what goes wrong in whatever thread is raised here."""
        with self._turn:
            shell.start()
            self._shell = shell
        while self._served():
            self._asleep = False
            with self._turn:  # the thread that has the turn wakes the shell itself, if its time comes meanwhile
                self._due = inf
                self._work()
            self._take_turns()
            self._beat()
            if self._served():
                self._sleep()
        if self._error is not None:
            raise self._error

    def _served(self) -> bool:
        return self._shell is not None

    def _sleep(self) -> None:
        self._asleep = True  # before the deadline is read: a thread that plans something sooner from now on rings
        with suppress(Empty):
            self._bell.get(timeout=max(0.0, min(self._every, self._due - self._clock.now())))

    def _take_turns(self) -> None:
        """Drain the queue unless another thread holds the lock; check again after releasing it."""
        while self._events and self._served() and self._turn.acquire(blocking=False):
            try:
                self._work()
            finally:
                self._turn.release()

    def _work(self) -> None:
        shell = self._shell
        if shell is None:  # it has ended in between
            return
        try:
            deadline = None if self._events else self._wake(shell)
            while self._events and not shell.ended:
                shell.handle(self._events.popleft())
                deadline = self._wake(shell)  # also while others speak: who floods us must not stop the clock
        except BaseException as error:  # noqa: BLE001 - of any thread: the serving thread raises it
            self._error, self._shell = error, None
            self._bell.put(None)
            return
        if shell.ended:
            self._shell = None
            self._bell.put(None)
            return
        self._plan(self._clock.now() + LONGEST if deadline is None else deadline)

    def _wake(self, shell: Reactor) -> float | None:
        """Wake the shell if its time has come; when it wants to be woken next."""
        deadline = None if shell.ended else shell.deadline()
        if deadline is None or self._clock.now() < deadline:
            return deadline
        shell.handle(DeadlineReached())
        return None if shell.ended else shell.deadline()

    def _plan(self, moment: float) -> None:
        """The serving thread looks again then, or before; it is woken only if it means to sleep longer."""
        if moment < self._due:
            self._due = moment
            if self._asleep:
                self._bell.put(None)
