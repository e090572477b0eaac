"""Many real agents in one process: `python -m edgefl.ops.bench.scale.crowd URL FIRST COUNT`.

Each is the whole agent with its session, its signatures, its spool and a connection of its own. What they share is a
thread that serves all of them from one queue, and one that trains; their disks are memory, as a hundred devices have a
hundred disks and this machine has one.
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from typing import Any

from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, TrainingSetup
from edgefl.ops.bench.noop import NOTHING, Blank, register
from edgefl.system import logs, resident_memory
from edgefl.system.background import Crashed, Put, Work
from edgefl.system.clock import Clock, SystemClock
from edgefl.system.memory_disk import MemoryDisk
from edgefl.system.reactor import LONGEST, DeadlineReached, Reactor
from edgefl.wire.address import parse
from edgefl.wire.opening import open_transport
from edgefl.wire.wiring import Wiring


class SharedBackground:
    """A Background of one device: its work is done by the thread of all."""

    def __init__(self, pool: ThreadPoolExecutor, put: Put) -> None:
        self._pool, self._put = pool, put

    def start(self, work: Work) -> None:
        self._pool.submit(self._run, work)

    def cancel(self) -> None:
        """The work looks for itself whether it is still wanted."""

    def close(self) -> None:
        """The thread is not ours to end."""

    def _run(self, work: Work) -> None:
        try:
            work(self._put)
        except Exception as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._put(Crashed(error))


class Crowd:
    """Many shells in one loop; `edgefl/system/reactor.py` is that of one."""

    def __init__(self, shells: Sequence[Reactor], events: "SimpleQueue[tuple[int, Any]]", clock: Clock) -> None:
        self.shells, self.events, self.clock = shells, events, clock
        self.alive = set(range(len(shells)))
        self.wakings: list[tuple[float, int]] = []  # a heap; what is no longer a shell's deadline is skipped
        self.deadlines: list[float | None] = [None] * len(shells)

    def serve(self) -> None:
        """Hand each event to the shell it is for, until all have ended."""
        for i, shell in enumerate(self.shells):
            shell.start()
            self._look(i)
        while self.alive:
            if (told := self._next()) is not None:
                self._handle(*told)
            while self.wakings and self.wakings[0][0] <= self.clock.now():
                moment, i = heappop(self.wakings)
                if self.deadlines[i] == moment:
                    self.deadlines[i] = None
                    self._handle(i, DeadlineReached())

    def _handle(self, i: int, event: Any) -> None:
        if i in self.alive:
            self.shells[i].handle(event)
            self._look(i)

    def _look(self, i: int) -> None:
        """Whether it has ended, and when it wants to be woken."""
        if self.shells[i].ended:
            self.alive.discard(i)
            return
        deadline = self.shells[i].deadline()
        if deadline is not None and deadline != self.deadlines[i]:
            heappush(self.wakings, (deadline, i))
        self.deadlines[i] = deadline

    def _next(self) -> tuple[int, Any] | None:
        """Return the next event, unless a device is to be woken before."""
        patience = min(LONGEST, max(0.0, self.wakings[0][0] - self.clock.now())) if self.wakings else LONGEST
        try:
            return self.events.get(timeout=patience)
        except Empty:
            return None


def main(url: str, first: int, count: int) -> None:
    """Serve until SIGTERM, which needs no goodbye: the broker goes too."""
    logs.set_up("warning")
    resident_memory.one_heap()
    register()
    address, clock = parse(url), SystemClock()
    events: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    pool = ThreadPoolExecutor(1, "training")

    def agent(i: int) -> Agent:
        put: Callable[[Any], None] = lambda event: events.put((i, event))  # noqa: E731 - one line, one use
        name = f"device-{first + i:04d}"
        return Agent(
            DeviceIdentity(name, "bench", "none"),
            Wiring(open_transport(address, name, suffix=False), clock, SharedBackground(pool, put), put),
            MemoryDisk(),
            TrainingSetup(NOTHING, lambda manifest, _: Blank(manifest.layout.layout())),
        )

    Crowd([agent(i) for i in range(count)], events, clock).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
