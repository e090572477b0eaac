"""Hits, guesses and truths of each class: what IoU and F1 are made of. Their sums over devices are those of all.

sums    hits     places of a class that were taken for it
        taken    places that were taken for it, rightly or not
        true     places that are of it
"""

from collections.abc import Sequence

import numpy as np

from edgefl.base.vector import Array


def overlap(hits: Array, taken: Array, true: Array) -> Array:
    """The sums, each (classes,)."""
    return np.stack([hits, taken, true]).astype(np.float64)


def possible(sums: Array, most: float) -> bool:
    """Return whether guesses at this number of places of each class, at most, can have such sums."""
    hits, taken, true = sums
    return bool((hits >= 0).all() and (hits <= taken).all() and (hits <= true).all() and sums.max(initial=0) <= most)


def iou(sums: Array) -> Sequence[float | None]:
    """Intersection over union of each class; None of one that is neither there nor guessed."""
    hits, taken, true = sums
    union = (taken + true - hits).tolist()
    return [hit / either if either else None for hit, either in zip(hits.tolist(), union, strict=True)]


def f1(sums: Array) -> Sequence[float | None]:
    """The harmonic mean of precision and recall of each class; None of one that is neither there nor guessed."""
    hits, taken, true = sums
    both = (taken + true).tolist()
    return [2 * hit / of if of else None for hit, of in zip(hits.tolist(), both, strict=True)]
