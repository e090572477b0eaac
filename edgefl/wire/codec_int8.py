"""One byte a number: every tensor is divided by its own scale and rounded to -127 ... 127.

    parts, exact              uint32 each
    lengths                   uint32 each       numbers of each part, in their order
    scales                    float32 each
    numbers                   int8 each         of all parts
    statistics                float32 each      the last `exact` numbers, as they are

A number x becomes x / scale, rounded up with the chance of its fraction: right on average, so that what many devices
send does not drift. Without a random stream it is rounded to the nearest. Chance comes in 65,536ths, of which one draw
of 64 bits has four: finer ones a float32 of up to 127 steps could hardly tell apart.

Numbers are processed in blocks that stay in the processor's cache, in memory that is used again. To map new memory for
every pass over a large vector would take longer than the computation.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, Layout, Vector

LEVELS = 127
BLOCK = 1 << 15  # numbers that are rounded at a time
_HEAD = 8


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class Int8:
    """A quarter of the bytes, with a scale for each tensor; BatchNorm's statistics travel as they are."""

    name: Literal["int8"] = "int8"

    lossless: ClassVar[bool] = False
    fixed: ClassVar[bool] = False
    ways: ClassVar[tuple[str, ...]] = ("up", "down")

    def encode(
        self, v: Vector, layout: Layout | None = None, rng: np.random.Generator | None = None
    ) -> tuple[bytes | memoryview, Vector]:
        lengths, exact = divided(v.size, layout)
        inner = v.size - exact
        scales = np.array([_scale(v[a:b]) for a, b in _spans(lengths)], "<f4")
        levels = np.zeros(inner, np.int8)
        for (a, b), scale in zip(_spans(lengths), scales, strict=True):
            if scale > 0:  # else there is nothing in it, or nothing that can be told
                _round(v[a:b], scale, rng, levels[a:b])
        head = np.array([len(lengths), exact, *lengths], "<u4")
        tail = np.ascontiguousarray(v[inner:], "<f4")
        payload = b"".join((head.tobytes(), scales.tobytes(), levels.tobytes(), tail.tobytes()))
        return payload, _vector(lengths, scales, levels, tail)

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        if len(payload) < _HEAD:
            raise WireError("wire.shape", f"int8: {len(payload)} bytes are no head")
        parts, exact = (int(n) for n in np.frombuffer(payload, "<u4", 2))
        inner = size - exact
        expected = _HEAD + 8 * parts + inner + 4 * exact
        if inner < 0 or len(payload) != expected:
            raise WireError("wire.shape", f"int8: {size} numbers in {parts} parts, {len(payload)} bytes came")
        lengths = np.frombuffer(payload, "<u4", parts, _HEAD).tolist()
        if sum(lengths) != inner:
            raise WireError("wire.shape", f"int8: the parts have {sum(lengths)} numbers, not {inner}")
        scales = np.frombuffer(payload, "<f4", parts, _HEAD + 4 * parts)
        levels = np.frombuffer(payload, np.int8, inner, _HEAD + 8 * parts)
        return _vector(lengths, scales, levels, np.frombuffer(payload, "<f4", exact, _HEAD + 8 * parts + inner))

    def most(self, layout: Layout) -> int:
        lengths, exact = divided(layout.size, layout)
        return _HEAD + 8 * len(lengths) + sum(lengths) + 4 * exact


def divided(size: int, layout: Layout | None) -> tuple[list[int], int]:
    """How many numbers each tensor has, and how many statistics stand behind them; without a layout it is one."""
    if layout is None:
        return [size], 0
    trained = [part.stop - part.start for part in layout if part.stop <= layout.trainable]
    return trained, size - layout.trainable


def _spans(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(lengths, initial=0)))


def _scale(part: Array) -> float:
    """One step: the largest number is LEVELS of them. Not a number, if the part has one that is not finite."""
    largest = max(float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
    return largest / LEVELS if np.isfinite(largest) else np.nan  # the receiver must see that something was wrong


def _round(part: Array, scale: np.float32, rng: np.random.Generator | None, levels: Array) -> None:
    """Fill `levels`, which are as many."""
    room, chances = (np.empty(min(part.size, BLOCK), np.float32) for _ in range(2))
    for start in range(0, part.size, BLOCK):
        block = part[start : start + BLOCK]
        steps, chance = room[: block.size], chances[: block.size]
        np.divide(block, scale, out=steps)
        np.clip(steps, -LEVELS, LEVELS, out=steps)  # the scale was rounded itself
        if rng is None:
            np.rint(steps, out=steps)
        else:
            np.multiply(_draws(rng, block.size), np.float32(2**-16), out=chance)
            np.floor(np.add(steps, chance, out=steps), out=steps)
        levels[start : start + BLOCK] = steps


def _draws(rng: np.random.Generator, count: int) -> Array:
    """Draw this number of 16-bit values."""
    wide = rng.integers(0, 2**64 - 1, -(-count // 4), np.uint64, endpoint=True)
    return wide.astype("<u8", copy=False).view("<u2")[:count]  # the same on every machine


def _vector(lengths: Sequence[int], scales: Array, levels: Array, tail: Array) -> Vector:
    """Both sides make it here, so that both see the same bits."""
    v = np.empty(levels.size + tail.size, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused where vectors are judged
        for (a, b), scale in zip(_spans(lengths), scales, strict=True):
            np.multiply(levels[a:b], scale, out=v[a:b], dtype=np.float32)
    v[levels.size :] = tail
    return v
