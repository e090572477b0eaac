"""The simulator beside a bare loop of torch, as rows of the same table; `simulator.py` above tells more of it."""

from collections.abc import Iterator
from contextlib import ExitStack

from tools.bench.interleaved import interleaved
from tools.bench.peers.compare import Row
from tools.bench.peers.loads import SIMULATOR
from tools.bench.peers.side import TurnCost
from tools.bench.simulator import FLEETS, sides

NAMES = {"workers 1": "edgefl, 1 worker", "workers 2": "edgefl, 2 workers", "torch": "bare torch loop"}


def compare_simulators(turns: int) -> Iterator[Row]:
    """A row for one worker of ours, one for two, and one for the bare loop."""
    fleet = FLEETS[0]
    with ExitStack() as until_done:
        playing = {NAMES[side]: work for side, work in sides(fleet, until_done).items() if side in NAMES}
        taken = interleaved(playing, repeats=turns, calls=fleet.rounds)
    for name in NAMES.values():
        yield Row(SIMULATOR, name, tuple(TurnCost(one.wall / 1000, one.cpu / 1000) for one in taken[name]))
