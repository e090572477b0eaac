"""Rounds through a real broker: wall time and CPU seconds, ours and a reference taking turns.

There are two references: bare paho clients that move the same bytes (`against_bare`), and, for what security costs, the
same services without TLS and without signatures (`against_plain`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Literal, Protocol

import psutil

from edgefl.ops.bench.own_broker import started_broker
from edgefl.ops.bench.report import BenchComparison
from edgefl.ops.bench.secured import SecuredFleet, secured_fleet
from edgefl.system.processes import Child
from edgefl.wire.address import Address
from tools.bench.paho_baseline import PahoServer
from tools.processes import python

SETTLING = 2  # rounds that are not counted: connections warm up, memory is mapped
SMALL = 100_000  # parameters; below, the number of messages decides and not that of bytes
BAR = 1.5  # for large models, wall and CPU
SEAL_BAR = 1.1  # of a round's CPU with sealed answers to that with open ones: more, and they were no default
LIMIT = 50.0  # ms for a round with a small one, on an idle machine
SECURITY_BAR = 1.25  # for TLS 1.3, certificates, access rules and signatures together, wall and CPU

Play = Callable[[int, int, Callable[[], None]], None]  # parameters, rounds, and whom to tell after each round
Samples = list[list[float]]  # of each side


class Ours(Protocol):
    """The real services, with a number of agent processes: `services.py`."""

    def command(self, address: Address, name: str, folder: Path) -> list[str]:
        """How to start the agent of this name."""
        ...

    def play(self, address: Address, agents: Sequence[Child], *, seal: bool) -> Play:
        """Coordinate them from this process; with `seal` their answers are for us alone."""
        ...


@dataclass(frozen=True, slots=True)
class TransportSide:
    """A way to play rounds, and all processes that work for it."""

    play: Play
    pids: Sequence[int]


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
class TransportBench:
    """What to measure."""

    devices: int = 10
    params: tuple[int, ...] = (1_000_000, 10_000)
    rounds: int = 10
    repeats: int = 3
    broker: Literal["auto", "mosquitto", "iotcore"] = "mosquitto"

    @property
    def names(self) -> list[str]:
        """Of the devices."""
        return [f"device-{i:02d}" for i in range(self.devices)]


def against_bare(plan: TransportBench, ours: Ours, folder: Path) -> Iterator[BenchComparison]:
    """Our rounds beside those of bare paho clients, at the same broker; and what sealing adds."""
    with ExitStack() as until_done:
        address, served_by = until_done.enter_context(started_broker(plan.broker))
        agents = _agents(until_done, plan, ours, address, folder)
        bare = [_start(until_done, _client(address, n), folder / f"bare-{n}.log") for n in plan.names]
        server = PahoServer(address, plan.devices)
        until_done.callback(server.close)
        sides = (
            _side(ours.play(address, agents, seal=False), served_by, agents),
            _side(server.play, served_by, bare),
            _side(ours.play(address, agents, seal=True), served_by, agents),
        )
        for params, walls, cpus in _turns(plan, sides):
            bar, limit = (None, LIMIT) if params < SMALL else (BAR, None)
            yield BenchComparison(f"{params:,} parameters, wall", "ms", walls[0], walls[1], bar, limit)
            yield BenchComparison(f"{params:,} parameters, CPU", "ms", cpus[0], cpus[1], bar)
            yield BenchComparison(
                f"{params:,} parameters, CPU, sealed answers beside open ones", "ms", cpus[2], cpus[0], SEAL_BAR
            )


def against_plain(
    plan: TransportBench, secured: Callable[[SecuredFleet], Ours], plain: Ours, folder: Path
) -> Iterator[BenchComparison]:
    """Rounds at the broker of a secured fleet beside rounds of the same services that have no security at all.

    Answers are open on both sides: what it costs to seal them is another question, see `against_bare`.
    """
    with ExitStack() as until_done:
        fleet = until_done.enter_context(secured_fleet(folder / "fleet", plan.names))
        (fleet_broker,) = _pids([fleet.broker])
        address, plain_broker = until_done.enter_context(started_broker("mosquitto"))
        sides = []
        for name, ours, at, broker_pid in (
            ("secured", secured(fleet), fleet.address, fleet_broker),
            ("plain", plain, address, plain_broker),
        ):
            (folder / name).mkdir()
            agents = _agents(until_done, plan, ours, at, folder / name)
            sides.append(_side(ours.play(at, agents, seal=False), broker_pid, agents))
        for params, walls, cpus in _turns(plan, sides):
            yield BenchComparison(f"{params:,} parameters, wall", "ms", walls[0], walls[1], SECURITY_BAR)
            yield BenchComparison(f"{params:,} parameters, CPU", "ms", cpus[0], cpus[1], SECURITY_BAR)


def _turns(plan: TransportBench, sides: Sequence[TransportSide]) -> Iterator[tuple[int, Samples, Samples]]:
    """For each size of model the wall times and the CPU times of a round in ms, side by side."""
    for params in plan.params:
        rounds = SETTLING + max(1, plan.rounds) * (5 if params < SMALL else 1)  # CPU clocks tick every 10 ms
        meters: list[list[Meter]] = [[] for _ in sides]
        for _ in range(plan.repeats):
            for side, kept in zip(sides, meters, strict=True):
                meter = Meter(side.pids, rounds)
                side.play(params, rounds, meter.mark)
                kept.append(meter)
        walls = [[1000 * meter.wall for meter in side] for side in meters]
        cpus = [[1000 * meter.cpu for meter in side] for side in meters]
        yield params, walls, cpus


def _agents(until_done: ExitStack, plan: TransportBench, ours: Ours, address: Address, folder: Path) -> list[Child]:
    return [_start(until_done, ours.command(address, n, folder), folder / f"{n}.log") for n in plan.names]


def _side(play: Play, served_by: int, clients: Sequence[Child]) -> TransportSide:
    """The other end of the clients is in this process."""
    return TransportSide(play, [psutil.Process().pid, served_by, *_pids(clients)])


def _start(until_done: ExitStack, command: list[str], output: Path) -> Child:
    child = Child(command, output)
    until_done.callback(child.stop)
    return child


def _client(address: Address, name: str) -> list[str]:
    return python("tools.bench.paho_baseline", str(address), f"bare-{name}")


def _pids(children: Sequence[Child]) -> list[int]:
    return [child.process.pid for child in children if child.process]
