"""Rounds through a real broker: wall time and CPU seconds, ours and the bare reference taking turns."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Literal, Protocol

import psutil

from edgefl.bench.paho_baseline import Server
from edgefl.bench.report import Comparison
from edgefl.protocol import broker
from edgefl.protocol.address import Address
from edgefl.system.processes import Child

SETTLING = 2  # rounds that are not counted: connections warm up, memory is mapped
SMALL = 100_000  # parameters; below, the number of messages decides and not that of bytes
BAR = 1.5  # for large models, wall and CPU
SEAL_BAR = 1.1  # of a round's CPU with sealed answers to that with open ones: more, and they were no default
LIMIT = 50.0  # ms for a round with a small one, on an idle machine

Play = Callable[[int, int, Callable[[], None]], None]  # parameters, rounds, and whom to tell after each round


class Ours(Protocol):
    """The real thing, in so many agent processes; the bench may not import the services, so it is handed in."""

    def command(self, address: Address, name: str, folder: Path) -> list[str]:
        """How to start the agent of this name."""
        ...

    def play(self, address: Address, agents: Sequence[Child], *, seal: bool) -> Play:
        """Coordinate them from this process; with `seal` their answers are for us alone."""
        ...


@dataclass(slots=True)
class Meter:
    """Looks at the clock after each round, and at the CPU time of all processes where the counting begins and ends."""

    pids: Sequence[int]
    rounds: int  # the last one of these ends the counting
    marks: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def mark(self) -> None:
        """A round has ended."""
        self.marks.append(perf_counter())
        if len(self.marks) in (SETTLING, self.rounds):
            self.spent.append(sum(cpu_seconds(pid) for pid in self.pids))

    @property
    def wall(self) -> float:
        """Seconds of the median round."""
        counted = self.marks[SETTLING - 1 :]
        return median(after - before for before, after in pairwise(counted))

    @property
    def cpu(self) -> float:
        """CPU seconds of the mean round, all processes together."""
        return (self.spent[1] - self.spent[0]) / (self.rounds - SETTLING)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    devices: int = 10
    params: tuple[int, ...] = (1_000_000, 10_000)
    rounds: int = 10
    repeats: int = 3
    broker: Literal["auto", "mosquitto", "iotcore"] = "mosquitto"


def compare(plan: Plan, ours: Ours, folder: Path) -> Iterator[Comparison]:
    """For each size of model the wall time and the CPU seconds of a round on both sides, and what sealing adds."""
    with ExitStack() as until_done:
        address, served_by = until_done.enter_context(_broker(plan.broker))
        names = [f"device-{i:02d}" for i in range(plan.devices)]
        agents = [_start(until_done, ours.command(address, n, folder), folder / f"{n}.log") for n in names]
        bare = [_start(until_done, _client(address, n), folder / f"bare-{n}.log") for n in names]
        server = Server(address, plan.devices)
        until_done.callback(server.close)
        here = psutil.Process().pid
        sides = [
            (ours.play(address, agents, seal=False), [here, served_by, *_pids(agents)]),
            (server.play, [here, served_by, *_pids(bare)]),
            (ours.play(address, agents, seal=True), [here, served_by, *_pids(agents)]),
        ]
        for params in plan.params:
            small = params < SMALL
            rounds = SETTLING + max(1, plan.rounds) * (5 if small else 1)  # CPU clocks tick every 10 ms
            meters: tuple[list[Meter], ...] = ([], [], [])
            for _ in range(plan.repeats):
                for (play, pids), kept in zip(sides, meters, strict=True):
                    meter = Meter(pids, rounds)
                    play(params, rounds, meter.mark)
                    kept.append(meter)
            walls = [[1000 * meter.wall for meter in side] for side in meters]
            cpus = [[1000 * meter.cpu for meter in side] for side in meters]
            bar, limit = (None, LIMIT) if small else (BAR, None)
            yield Comparison(f"{params:,} parameters, wall", "ms", walls[0], walls[1], bar, limit)
            yield Comparison(f"{params:,} parameters, CPU", "ms", cpus[0], cpus[1], bar)
            yield Comparison(
                f"{params:,} parameters, CPU, sealed answers beside open ones", "ms", cpus[2], cpus[0], SEAL_BAR
            )


@contextmanager
def _broker(kind: Literal["auto", "mosquitto", "iotcore"]) -> Iterator[tuple[Address, int]]:
    """A broker of our own, and its process."""
    before = {child.pid for child in psutil.Process().children()}
    with broker.start(prefer=kind) as running:
        (served_by,) = {child.pid for child in psutil.Process().children()} - before
        yield running.address, served_by


def _start(until_done: ExitStack, command: list[str], output: Path) -> Child:
    child = Child(command, output)
    until_done.callback(child.stop)
    return child


def _client(address: Address, name: str) -> list[str]:
    return [sys.executable, "-m", "edgefl.bench.paho_baseline", str(address), f"bare-{name}"]


def _pids(children: Sequence[Child]) -> list[int]:
    return [child.process.pid for child in children if child.process]
