"""Products of vectors as long as the model: what stages that project spend their time on.

Sums are made in float64, in blocks that stay in cache; nothing is stacked or copied as a whole. On a GPU the same two
functions are `edgefl/learn/models/torch_products.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from edgefl.base.vector import Array, Vector

Rows: TypeAlias = Sequence[Vector] | Array  # vectors of one length, or a matrix: nothing is stacked or copied

SHORT = 500  # columns in a product of few rows with many: BLAS then neither repacks them nor wakes its threads


@dataclass(frozen=True, slots=True)
class Products:
    """Who makes them: `inner` and `recover` of this file, or the same on a GPU."""

    inner: Callable[..., Array]  # rows, and how many of them lead
    recover: Callable[[Vector, Rows, Array], Vector]


def inner(rows: Rows, lead: int | None = None) -> Array:
    """Inner products of the first `lead` rows (all, if not said) with all rows, accumulated in float64.

    The rows pass once, in blocks that stay in cache, so the float64 copies never take more than a few megabytes.
    """
    k = len(rows)
    lead = k if lead is None else lead
    total = np.zeros((lead, k))
    for block in _blocks(rows):
        if lead == k:
            total += block @ block.T  # of which BLAS computes one half
            continue
        for i in range(0, block.shape[1], SHORT):
            total += block[:lead, i : i + SHORT] @ block[:, i : i + SHORT].T
    return total


def recover(p: Vector, rows: Rows, multipliers: Array) -> Vector:
    """The sum p + rows' multipliers, made in float64, in the type of `p`; p itself if no row pushes."""
    active = np.flatnonzero(multipliers).tolist()
    if not active:
        return p
    x, start = np.empty_like(p), 0
    for block in _blocks([p, *(rows[i] for i in active)]):
        stop = start + block.shape[1]
        x[start:stop] = block[0] + multipliers[active] @ block[1:]
        start = stop
    return x


def _blocks(rows: Rows) -> Iterator[Array]:
    """The rows as float64, some columns at a time; each block overwrites the one before."""
    k, d = len(rows), len(rows[0])
    width = min(d, max(1000, 800_000 // k))
    room = np.empty((k, width))
    for start in range(0, d, width):
        block = room[:, : min(width, d - start)]
        for i in range(k):
            block[i] = rows[i][start : start + width]
        yield block


ON_CPU = Products(inner, recover)
