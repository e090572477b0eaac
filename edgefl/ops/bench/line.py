"""A server's end of its line: orders come in; what clocks say goes out after each round, and what came of it.

It needs the standard library alone, so that a server in any interpreter can run this file.
"""

import json
import socket
from collections.abc import Callable
from time import clock_gettime, perf_counter
from typing import Any

SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of Linux: all threads of a process, in nanoseconds; /proc has ticks of 10 ms


def cpu_seconds(pid: int) -> float | None:
    """What a process has used so far; None: it has gone."""
    try:
        return clock_gettime((~pid << 3) | SCHEDULER_CLOCK)
    except OSError:
        return None


class ServerLine:
    """The line behind a path; an order names the processes whose CPU time is told with every mark."""

    def __init__(self, path: str) -> None:
        line = socket.socket(socket.AF_UNIX)
        line.connect(path)
        self._line = line.makefile("rw", encoding="utf-8")
        self._pids: list[int] = []

    def order(self) -> dict[str, Any] | None:
        """The next one; None when the other end has closed."""
        text = self._line.readline()
        if not text:
            return None
        order: dict[str, Any] = json.loads(text)
        self._pids = order["pids"]
        return order

    def mark(self) -> None:
        """A round has ended."""
        self._say([perf_counter(), [cpu_seconds(pid) for pid in self._pids]])

    def done(self, result: Any = None) -> None:
        """All rounds have, and nothing of them is still under way."""
        self._say(result)

    def _say(self, what: Any) -> None:
        self._line.write(json.dumps(what) + "\n")
        self._line.flush()


def serve(path: str, play: Callable[[dict[str, Any], Callable[[], None]], Any]) -> None:
    """Play what is ordered until the other end closes; `play` hears whom to tell after each round."""
    line = ServerLine(path)
    while (order := line.order()) is not None:
        line.done(play(order, line.mark))
