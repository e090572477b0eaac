"""A server's shell on a virtual clock and a disk in memory, with processes that a test ends."""

from collections.abc import Callable
from random import Random
from typing import Any

from edgefl.server.decide.presence import PresenceState
from edgefl.server.decide.vocabulary import Fact, Recurring, Submission
from edgefl.server.shell.coordinators import ProcessEnded
from edgefl.server.shell.service import Server, Surroundings
from edgefl.sim.world import Process, World
from tools.failing_disk import FailingDisk


class Broken(AssertionError):  # noqa: N818 - what it is
    """A rule that a server keeps, whatever happens, was broken."""


class RecordedCoordinators:
    """Processes of runs, as a test sees them: those that work, in the order in which they were started."""

    def __init__(self, put: Callable[[Any], None]) -> None:
        self.put = put
        self.started: list[str] = []
        self.alive: dict[str, Submission] = {}
        self.stopping: list[str] = []

    def start(self, name: str, submission: Submission) -> None:
        if name in self.alive:
            raise Broken(f"one process each: '{name}' was started while it works")
        self.started.append(name)
        self.alive[name] = submission

    def stop(self, name: str) -> None:
        self.stopping.append(name)

    def close(self) -> None:
        self.alive.clear()

    def end(self, name: str, code: int = 0, reason: str = "") -> None:
        """The process ends."""
        del self.alive[name]
        self.put(ProcessEnded(name, code, reason))


class VirtualServer:
    """One machine, and the lives of a server on it, one after another."""

    def __init__(self, at_once: int = 2) -> None:
        self.world, self.disk, self.at_once = World(), FailingDisk(), at_once
        self.facts: dict[int, Fact] = {}  # as a reader has them that drops numbers it knows
        self.told: list[int] = []
        self.deleted: list[str] = []
        self.ahead = 0.0  # seconds that its clock on the wall is fast
        self.start()

    def start(self) -> None:
        """Another life."""
        self.process: Process = self.world.process("server")
        self.process.clock.ahead = self.ahead
        self.coordinators = RecordedCoordinators(self.process.put)
        around = Surroundings(
            self.process.clock,
            self.disk,
            self.process.background(lambda _: 0.1),
            self.process.put,
            self.coordinators,
            lambda _submission, name: self.deleted.append(name),
            self._tell,
        )
        self.server = Server(around, {}, at_once=self.at_once)
        self.server.fleets = {"default": NoFleet()}  # type: ignore[dict-item]  # the part that is used
        self.process.run(self.server)

    def kill(self, seed: int | None = None) -> None:
        """The server is killed; with a seed its machine loses power."""
        self.process.kill()
        if seed is not None:
            self.disk.crash(Random(seed))

    def jump(self, seconds: float) -> None:
        """Set the clock on the wall."""
        self.ahead += seconds
        self.process.clock.ahead = self.ahead

    def pass_time(self, seconds: float) -> None:
        self.world.run(limit=self.world.now + seconds)

    def phases(self) -> dict[str, str]:
        return {name: run.phase for name, run in self.server.state.runs.items()}

    def _tell(self, sequence: int, _at: float, fact: Fact) -> None:
        """A reader that keeps the first fact of each number."""
        self.told.append(sequence)
        if self.facts.setdefault(sequence, fact) != fact:
            raise Broken(f"told twice: fact {sequence} was {self.facts[sequence]}, is {fact}")


class NoFleet:
    """A fleet whose broker says nothing; a test sets its state."""

    def __init__(self) -> None:
        self.state = PresenceState()

    def start(self) -> None: ...

    def deadline(self) -> None: ...

    def woken(self) -> None: ...

    def close(self) -> None: ...


def run_of(name: str, *, recurring: Recurring | None = None, keep: int = 30) -> Submission:
    """A run file, as far as the queue looks at it."""
    return Submission(name, "default", "[run]", recurring=recurring, keep=keep)
