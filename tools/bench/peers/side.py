"""One side of the comparison: a server process and its clients, whose rounds are timed turn by turn."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from edgefl.ops.bench.line import cpu_seconds
from edgefl.ops.bench.server import BenchServer, pid, start
from tools.bench.peers.loads import SETTLING, Load
from tools.bench.peers.meter import family, resident_mb


@dataclass(frozen=True, slots=True)
class TurnCost:
    """What a round of one turn took, all processes together."""

    wall: float  # seconds, of the median round
    cpu: float  # seconds, of the mean one
    client_mb: float | None = None  # the median client's


@dataclass(frozen=True, slots=True)
class Programs:
    """How the processes of a side are started: its server, given its line, and a client, given its number."""

    name: str
    server: Callable[[Path], list[str]]
    client: Callable[[int], list[str]]
    others: tuple[int, ...] = ()  # processes that work for it and are there already: the broker


class PeerSide:
    """The processes of a side, for as long as `until_done` lasts."""

    def __init__(self, programs: Programs, clients: int, folder: Path, until_done: ExitStack) -> None:
        self.server = BenchServer(programs.name, programs.server, folder, until_done)
        self.clients = [start(until_done, programs.client(i), folder / f"client-{i:02d}.log") for i in range(clients)]
        self._pids = [pid(self.server.child), *map(pid, self.clients), *programs.others]

    def play(self, load: Load, codec: str = "float32") -> TurnCost:
        """Play one turn: a number of rounds, one after another."""
        everybody = family(self._pids)
        order = {"params": load.params, "rounds": SETTLING + load.rounds, "codec": codec, "pids": sorted(everybody)}
        memory, born = list[float](), list[float]()

        def seen(number: int) -> None:
            if number == order["rounds"]:
                children = family(self._pids) - everybody  # who came meanwhile counts from birth
                born.append(sum(cpu_seconds(child) or 0.0 for child in children))
                memory.append(median(resident_mb(pid(client)) for client in self.clients))

        marks, _ = self.server.play(order, self.clients, seen)
        counted = marks[SETTLING - 1 :]
        return TurnCost(
            wall=median(later.moment - earlier.moment for earlier, later in pairwise(counted)),
            cpu=(counted[-1].since(counted[0], everybody) + born[0]) / load.rounds,
            client_mb=memory[0],
        )
