"""Time of pieces of work that take turns, so that a busy moment of the machine hits all of them."""

from collections.abc import Callable
from time import process_time

Work = Callable[[], object]


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
    """Return CPU milliseconds per call, over this number of calls."""
    began = process_time()
    for _ in range(calls):
        work()
    return 1000 * (process_time() - began) / calls
