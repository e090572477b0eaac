"""A model is one flat float32 vector and a layout of named slices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Vector: TypeAlias = NDArray[Any]  # one-dimensional float32; checked where it enters the program
State: TypeAlias = dict[str, Array]  # named arrays; {} is always a valid state, so nothing has an `init`


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of the tensors behind a flat vector, in order.

    The last `buffers` tensors are statistics (BatchNorm's running mean and variance): they travel and are
    averaged with the rest, but never enter a gradient, a dot product, momentum or noise. `norms` names the tensors of
    layers that normalise, where the network is at hand; messages and checkpoints do not name them.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    buffers: int = 0
    norms: tuple[str, ...] = field(default=(), compare=False)
    slices: tuple[slice, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ValueError("a layout needs one shape for each name, and no name twice")
        if not 0 <= self.buffers <= len(self.names):
            raise ValueError(f"a layout of {len(self.names)} tensors cannot have {self.buffers} buffers")
        ends = accumulate((prod(shape) for shape in self.shapes), initial=0)  # plain integers: they never wrap around
        object.__setattr__(self, "slices", tuple(slice(a, b) for a, b in pairwise(ends)))

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return int(self.slices[-1].stop) if self.slices else 0

    @property
    def trainable(self) -> int:
        """How many of them, from the front, are trained."""
        first_buffer = len(self.names) - self.buffers
        return int(self.slices[first_buffer - 1].stop) if first_buffer else 0

    def __iter__(self) -> Iterator[slice]:
        return iter(self.slices)

    def layers(self, w: Vector) -> dict[str, Array]:
        """Views of `w`, by name: writing to one writes to `w`."""
        check(w, self.size)
        return {n: w[s].reshape(shape) for n, s, shape in zip(self.names, self.slices, self.shapes, strict=True)}

    def flatten(self, tensors: Mapping[str, Array]) -> Vector:
        """The flat vector of these named tensors."""
        parts = [np.asarray(tensors[n], np.float32).reshape(-1) for n in self.names]
        w = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return check(w, self.size)


def check(w: Array, size: int) -> Vector:
    """`w` itself, if it is a vector of that many numbers."""
    if w.ndim != 1 or w.size != size:
        raise ValueError(f"expected a vector of {size} numbers, got shape {w.shape}")
    return w


# Numbers at a time: float64 copies stay in cache, and BLAS neither starts threads nor lets their number decide bits.
BLOCK = 8192


def dot(a: Array, b: Array) -> float:
    """The inner product, accumulated in float64: its sign decides projections."""
    total = 0.0
    for i in range(0, a.size, BLOCK):
        total += float(np.dot(a[i : i + BLOCK].astype(np.float64), b[i : i + BLOCK].astype(np.float64)))
    return total


def norm(a: Array) -> float:
    """The Euclidean length, accumulated in float64: the root of `dot(a, a)`, with one copy of each block."""
    total = 0.0
    for i in range(0, a.size, BLOCK):
        block = a[i : i + BLOCK].astype(np.float64)
        total += float(np.dot(block, block))
    return float(np.sqrt(total))
