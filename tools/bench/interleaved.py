"""Time of more than two pieces of work that take turns, by the processors and by the clock on the wall."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, process_time

from edgefl.ops.bench.clock import Work


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """Milliseconds per call: of all our processors together, and of the clock on the wall."""

    cpu: float
    wall: float


def interleaved(sides: Mapping[str, Work], *, repeats: int, calls: int = 1) -> dict[str, list[TimeTaken]]:
    """What each side took in each of its turns; a turn is one call, which does what counts as `calls` of them.

    A first turn of each side is not counted.
    """
    taken: dict[str, list[TimeTaken]] = {side: [] for side in sides}
    for work in sides.values():
        work()
    for _ in range(repeats):
        for side, work in sides.items():
            cpu, wall = process_time(), perf_counter()
            work()
            cpu, wall = process_time() - cpu, perf_counter() - wall
            taken[side].append(TimeTaken(1000 * cpu / calls, 1000 * wall / calls))
    return taken
