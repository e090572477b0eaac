"""Slow work outside the loop, which comes back as events."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, Protocol, TypeAlias

Put: TypeAlias = Callable[[Any], None]
Work: TypeAlias = Callable[[Put], None]


@dataclass(frozen=True, slots=True)
class Crashed:
    """The work ended with an error that it did not tell itself."""

    error: Exception


class Background(Protocol):
    """A worker that does one thing after another, in the order they were given.

    Work is called with `put`; whatever it puts reaches the loop of its owner as an event. It owns what it was given and
    reads nothing of its owner's. It never waits: what has to be tried again later is an event, and the owner's timer.
    """

    def start(self, work: Work) -> None:
        """Do this next."""
        ...

    def cancel(self) -> None:
        """Ask the work in hand to stop; what it still puts is ignored."""
        ...

    def close(self) -> None:
        """No more work is begun, and none is under way when this returns."""
        ...


class Threads:
    """A thread of its own, from the first work on. Results are not waited for, so it needs none of what a pool has."""

    def __init__(self, put: Put, name: str) -> None:
        self._put, self._name = put, name
        self._works: SimpleQueue[Work | None] = SimpleQueue()  # None: the end
        self._thread: Thread | None = None

    def start(self, work: Work) -> None:
        self._works.put(work)
        if self._thread is None:
            self._thread = Thread(target=self._serve, name=self._name)
            self._thread.start()

    def cancel(self) -> None:
        """The work looks for itself whether it is still wanted."""

    def close(self) -> None:
        with suppress(Empty):
            while True:  # what was not begun never will be
                self._works.get_nowait()
        self._works.put(None)
        if self._thread is not None and self._thread is not current_thread():  # what it put may have been the end
            self._thread.join()

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            self._run(work)
            del work  # while it waits for the next one: with it go the model and the update that it was about

    def _run(self, work: Work) -> None:
        try:
            work(self._put)
        except Exception as error:  # noqa: BLE001 - handed to the owner's loop, which raises it
            self._put(Crashed(error))
