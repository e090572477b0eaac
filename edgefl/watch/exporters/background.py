"""An exporter in a thread of its own: nothing that it does, or fails to do, reaches the run.

Telling it something never waits. What it could not take is tried again, later and later, while what follows waits in a
queue; when that is full, the oldest goes. The first failure is said in the log, and when it works again.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from edgefl.base.events import Evaluating, Fact
from edgefl.base.printable import printable
from edgefl.watch.exporters.base import Exporter, TimedExporter

log = logging.getLogger(__name__)

ROOM = 10_000  # facts that wait
FIRST, LONGEST = 1.0, 60.0  # seconds before the next attempt
FAREWELL = 10.0  # seconds for what is left when the run has ended


class BackgroundExporter:
    """`make` opens the exporter, in the thread: that may be slow as well."""

    def __init__(
        self,
        name: str,
        wants: tuple[type[Fact], ...],
        make: Callable[[], Exporter],
        *,
        room: int = ROOM,
        first: float = FIRST,
    ) -> None:
        self.name, self.wants, self._make, self._first = name, wants, make, first
        self._waiting: deque[Fact] = deque(maxlen=room)
        self._changed, self._closing = Condition(), False
        self._failing = False
        self.lost = 0  # facts that found no room
        self._thread = Thread(target=self._serve, name=f"export-{name}", daemon=True)
        self._thread.start()

    def __call__(self, fact: Fact) -> None:
        """Never waits, never fails."""
        if isinstance(fact, self.wants):
            with self._changed:
                self.lost += len(self._waiting) == self._waiting.maxlen
                self._waiting.append(fact)
                self._changed.notify()

    def end(self) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self, seconds: float = FAREWELL) -> None:
        """Let it finish, but not for long."""
        self.end()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("export to %s did not end in %g s; the rest is left out", self.name, seconds)
        elif self.lost:
            log.warning("export to %s could not keep up facts_left_out=%d", self.name, self.lost)

    def _serve(self) -> None:
        exporter: Exporter | None = None
        about: Evaluating | None = None
        pause = self._first
        while True:
            fact = self._next(exporter)
            if fact is None and self._over():
                break
            try:
                exporter = exporter or self._opened(about)
                if isinstance(fact, Evaluating):
                    about = fact
                if fact is not None:
                    exporter(fact)
                if isinstance(exporter, TimedExporter):
                    exporter.woken(time.time())
            except Exception as error:  # noqa: BLE001 - whatever it is: it is not the run's business
                self._failed(error)
                self._end(exporter)
                exporter = None
                if not self._again(fact, pause):
                    break
                pause = min(2 * pause, LONGEST)
                continue
            pause = self._first
            self._works()
        self._end(exporter)

    def _opened(self, about: Evaluating | None) -> Exporter:
        """A new one, which knows what an earlier one was told of the classes."""
        exporter = self._make()
        if about is not None:
            exporter(about)
        return exporter

    def _next(self, exporter: Exporter | None) -> Fact | None:
        """What is first, once there is something; None: it is time to wake the exporter, or to end."""
        with self._changed:
            due = exporter.deadline() if isinstance(exporter, TimedExporter) else None
            if not self._waiting and not self._closing:
                self._changed.wait(None if due is None else max(0.0, due - time.time()))
            return self._waiting.popleft() if self._waiting else None

    def _over(self) -> bool:
        with self._changed:
            return self._closing and not self._waiting

    def _again(self, fact: Fact | None, pause: float) -> bool:
        """Put it back and wait a little; False: there is no time for that any more."""
        with self._changed:
            if fact is not None and len(self._waiting) != self._waiting.maxlen:
                self._waiting.appendleft(fact)
            if self._closing:
                return False
            until = time.monotonic() + pause
            while not self._closing and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return True

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            log.warning("export to %s fails, and is tried again why=%s", self.name, printable(str(error))[:300])
        self._failing = True

    def _works(self) -> None:
        if self._failing:
            log.warning("export to %s works again", self.name)
        self._failing = False

    def _end(self, exporter: Exporter | None) -> None:
        try:
            if exporter is not None:
                exporter.close()
        except Exception as error:  # noqa: BLE001
            self._failed(error)
