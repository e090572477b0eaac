"""What a forward pass keeps for its pullback: a few large pieces of memory, cut the same way on both sides.

A network hands over dozens of values. Allocating and binding each would cost Python more time than a small graph
takes to run; pieces that lie where the last ones lay need no binding at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.vector import Array

PIECE = 16 * 2**20  # bytes: what is smaller, glibc gives again without asking the system for fresh pages
ALIGN = 64  # bytes: a line of the cache

Output: TypeAlias = tuple[str, Any, Sequence[int]]  # name, numpy type, shape


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """Where a value lies: in which piece, and how far from its start."""

    dtype: Any  # a numpy type
    shape: tuple[int, ...]
    piece: int
    offset: int


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """How the values for one batch size share the memory."""

    batch: int
    pieces: tuple[int, ...]  # bytes
    parts: dict[str, BufferSlice]


@dataclass(frozen=True)
class ForwardValues:
    """The values of one forward pass."""

    cut: BufferLayout
    memory: tuple[Array, ...]

    @cached_property
    def place(self) -> tuple[int, ...]:
        """Batch size and addresses: two with the same lie in the same memory in the same way."""
        return self.cut.batch, *(piece.ctypes.data for piece in self.memory)

    def address(self, part: BufferSlice) -> int:
        return self.place[1 + part.piece] + part.offset


def cut(outputs: Iterable[Output], batch: int) -> BufferLayout:
    """Values for this batch size one after the other, in a new piece where the last one would grow too large."""
    pieces, parts = list[int](), dict[str, BufferSlice]()
    for name, dtype, dims in outputs:
        shape = tuple(dims)
        need = -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // ALIGN) * ALIGN
        if not pieces or pieces[-1] + need > PIECE:
            pieces.append(0)
        parts[name] = BufferSlice(dtype, shape, len(pieces) - 1, pieces[-1])
        pieces[-1] += need
    return BufferLayout(batch, tuple(pieces), parts)


def fresh(how: BufferLayout) -> ForwardValues:
    """Memory for the values of a pass, not yet written to."""
    return ForwardValues(how, tuple(np.empty(max(bytes, 1), np.uint8) for bytes in how.pieces))
