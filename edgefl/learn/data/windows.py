"""Rows in their order as samples: windows that never reach over a gap, and parts that share no row.

Rows are divided into segments: stretches of one group in which nothing is missing. A window lies inside a segment.
Whole blocks of rows are held back, one of every five. So no row of a training window is in a held-back one, however
much windows overlap. Which ones does not change when rows are added behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array

USUAL = 3.0  # times the usual step in time: more is a gap
EVERY = 5  # one block out of this number is held back
BLOCKS = (4, 2, 1)  # windows that a block is long, the first that gives both parts something
FEWEST = 16  # rows of a block, at least, where it is not cut smaller


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Where each row of a table goes, and where segments begin in that order."""

    rows: Array  # numbers of rows, group by group, each in the order of time
    begins: Array  # for each of them, whether it begins a segment
    group: Array  # and the number of its group


def ordered(
    n: int, times: Array | None, groups: Sequence[str] | None, breaks: Array, gap: float | None = None
) -> OrderedRows:
    """Rows put in order. `breaks` marks those before which something is missing; times, if known, tell it better."""
    number = _numbered(n, groups)
    rows = np.lexsort((np.arange(n), np.zeros(n) if times is None else times, number))
    group = number[rows]
    begins = np.r_[True, group[1:] != group[:-1]] if n else np.zeros(0, bool)
    if times is None:
        return OrderedRows(rows, begins | breaks[rows], group)
    steps = np.diff(times[rows])
    if gap is None:
        usual = steps[(steps > 0) & ~begins[1:]]
        gap = USUAL * float(np.median(usual)) if len(usual) else np.inf
    return OrderedRows(rows, begins | np.r_[True, steps > gap] if n else begins, group)


def _numbered(n: int, groups: Sequence[str] | None) -> Array:
    """Groups as numbers, in the order in which they first appear."""
    place: dict[str, int] = {}
    return np.array([place.setdefault(g, len(place)) for g in groups], np.int64) if groups else np.zeros(n, np.int64)


@dataclass(frozen=True, slots=True)
class Starts:
    """The first row of each window, by part."""

    train: Array
    test: Array
    lost: int  # windows that have rows of both parts


def starts(begins: Array, group: Array, window: int, stride: int) -> Starts:
    """Where windows begin. Each part has at least one, if there are two that share no row."""
    first = firsts(begins, window, stride)
    least = max(FEWEST, BLOCKS[0] * window)
    tries = [_held_back(begins, group, size) for size in (least, *(times * window for times in BLOCKS[1:]))]
    for held in (*tries, _last_fifth(len(begins), first)):
        inside = np.r_[0, np.cumsum(held)]
        count = inside[first + window] - inside[first]
        parts = Starts(first[count == 0], first[count == window], int(((count > 0) & (count < window)).sum()))
        if len(parts.train) and len(parts.test):
            return parts
    return Starts(first, first[:0], 0)


def firsts(begins: Array, window: int, stride: int) -> Array:
    """Every `stride` rows of a segment, as long as a whole window fits."""
    fitting = [np.arange(a, b - window + 1, stride) for a, b in segments(begins)]
    return np.concatenate([np.zeros(0, np.int64), *fitting])


def segments(begins: Array) -> list[tuple[int, int]]:
    """The first row of each segment, and the row behind its last."""
    return list(pairwise([*np.flatnonzero(begins).tolist(), len(begins)]))


def _held_back(begins: Array, group: Array, size: int) -> Array:
    """Which rows are held back: of every five blocks of a group the one that its number chooses."""
    held = np.zeros(len(begins), bool)
    blocks: dict[int, int] = {}  # of each group, so far
    for a, b in segments(begins):
        number = int(group[a])
        for start in range(a, b, size):
            block = blocks.get(number, 0)
            blocks[number] = block + 1
            chosen = int(seeds.stream(0, "held back", number, block // EVERY).integers(EVERY))
            held[start : min(start + size, b)] = block % EVERY == chosen
    return held


def _last_fifth(n: int, first: Array) -> Array:
    """Too little for blocks: what comes last is held back, a fifth of the windows or one."""
    held = np.zeros(n, bool)
    if len(first):
        held[int(first[-max(1, round(len(first) / EVERY))]) :] = True
    return held


def label_of_windows(labels: Array, first: Array, window: int, *, majority: bool, classes: int) -> Array:
    """The class of each window, or the target of its last row; what has none stays without."""
    if not majority or not classes:
        return np.asarray(labels[first + window - 1])
    counts = np.zeros((len(first), classes), np.int64)
    for offset in range(window):  # the last row decides where two are equal: it counts a little more
        here = labels[first + offset]
        known = np.flatnonzero(here >= 0)
        counts[known, here[known]] += 2 + (offset == window - 1)
    best: Array = counts.argmax(axis=1)
    return np.where(counts.max(axis=1) > 0, best, -1)
