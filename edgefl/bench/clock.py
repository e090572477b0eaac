"""Time of pieces of work that take turns, so that a busy moment of the machine hits all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter, process_time

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Taken:
    """Milliseconds per call: of all our processors together, and of the clock on the wall."""

    cpu: float
    wall: float


def interleaved(sides: Mapping[str, Work], *, repeats: int, calls: int = 1) -> dict[str, list[Taken]]:
    """What each side took in each of its turns; a turn is one call, which does what counts as `calls` of them.

    A first turn of everybody is not counted.
    """
    taken: dict[str, list[Taken]] = {side: [] for side in sides}
    for work in sides.values():
        work()
    for _ in range(repeats):
        for side, work in sides.items():
            cpu, wall = process_time(), perf_counter()
            work()
            cpu, wall = process_time() - cpu, perf_counter() - wall
            taken[side].append(Taken(1000 * cpu / calls, 1000 * wall / calls))
    return taken


def turns(ours: Work, reference: Work, *, repeats: int, calls: int = 1) -> tuple[list[float], list[float]]:
    """CPU milliseconds per call, one sample for each turn of each side; a first call of both is not counted."""
    samples: tuple[list[float], list[float]] = ([], [])
    for work in (ours, reference):
        work()
    for _ in range(repeats):
        for work, kept in zip((ours, reference), samples, strict=True):
            kept.append(milliseconds(work, calls))
    return samples


def milliseconds(work: Work, calls: int) -> float:
    """CPU milliseconds per call, over so many calls."""
    began = process_time()
    for _ in range(calls):
        work()
    return 1000 * (process_time() - began) / calls
