"""The largest changes alone: a share of the numbers with their places, the rest is zero and waits for the next time.

    kept, exact, low, half    uint32, uint32, uint8, uint8
    quotients                 bits, padded      for each kept number: gap >> low zeros, then a one
    remainders                bits, padded      for each kept number: the `low` lower bits of its gap
    values                    float16 or float32 each
    statistics                float32 each      the last `exact` numbers, as they are

A gap is how many numbers lie between a kept one and the kept one before it. This is Rice's code; with `low` = 0 it is
a bitmap, which is what a large share comes to, and one of a hundred costs some eight bits a place.
"""

import struct
from math import ceil
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, Layout, Vector

_HEAD = struct.Struct("<IIBB")
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False), kw_only=True)
class TopK:
    """The `share` of the numbers that is largest; of equals the first. BatchNorm's statistics travel as they are."""

    name: Literal["topk"] = "topk"
    share: Annotated[float, Field(gt=0, le=1)] = 0.01  # of the numbers: those that changed most
    values: Literal["float16", "float32"] = "float16"  # how they are written

    lossless: ClassVar[bool] = False
    fixed: ClassVar[bool] = False
    ways: ClassVar[tuple[str, ...]] = ("up",)

    def encode(
        self,
        v: Vector,
        layout: Layout | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> tuple[bytes | memoryview, Vector]:
        inner = v.size if layout is None else layout.trainable
        places = largest(v[:inner], self._kept(inner))
        values = np.ascontiguousarray(v[places], "<f4")
        if self.values == "float16":
            values = np.clip(values, -_FLOAT16_MAX, _FLOAT16_MAX).astype("<f2")
        low, packed = pack(places)
        head = _HEAD.pack(len(places), v.size - inner, low, self.values == "float16")
        tail = np.ascontiguousarray(v[inner:], "<f4")
        seen = _vector(v.size, places, values, tail)
        return b"".join((head, packed, values.tobytes(), tail.tobytes())), seen

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        if len(payload) < _HEAD.size:
            raise WireError("wire.shape", f"topk: {len(payload)} bytes are no head")
        kept, exact, low, half = _HEAD.unpack_from(payload)
        kind, inner = np.dtype("<f2" if half else "<f4"), size - exact
        behind = kept * kind.itemsize + 4 * exact
        packed = len(payload) - _HEAD.size - behind
        if half > 1 or kept > inner or packed < 0:
            raise WireError("wire.shape", f"topk: {kept} of {size} numbers, {len(payload)} bytes came")
        places = unpack(memoryview(payload)[_HEAD.size : _HEAD.size + packed], kept, low, inner)
        values = np.frombuffer(payload, kind, kept, _HEAD.size + packed)
        return _vector(size, places, values, np.frombuffer(payload, "<f4", exact, len(payload) - 4 * exact))

    def most(self, layout: Layout) -> int:
        inner, exact = layout.trainable, layout.size - layout.trainable
        bitmap = ceil(inner / 8)  # the writer takes the shortest code, so none is longer than this one
        return _HEAD.size + bitmap + self._kept(inner) * (2 if self.values == "float16" else 4) + 4 * exact

    def _kept(self, size: int) -> int:
        return ceil(self.share * size)


def largest(v: Array, count: int) -> Array:
    """Where the `count` numbers of largest size stand, in their order; of equals the first, on every machine."""
    if not count:
        return np.zeros(0, np.int64)
    sizes = np.abs(v)
    sizes[np.isnan(sizes)] = np.inf  # sent before all others: the receiver must see that something was wrong
    edge = np.partition(sizes, v.size - count)[v.size - count]
    above, level = np.flatnonzero(sizes > edge), np.flatnonzero(sizes == edge)
    return np.sort(np.concatenate([above, level[: count - above.size]]))


def pack(places: Array) -> tuple[int, bytes]:
    """Ascending places as bits, and how many bits of each gap stand apart: as many as make it shortest."""
    gaps = np.diff(places, prepend=-1) - 1
    widths = range(int(gaps.max(initial=0)).bit_length() + 1)
    low = min(widths, key=lambda width: _bytes(int((gaps >> width).sum()) + gaps.size, gaps.size * width))
    quotients = np.zeros(int((gaps >> low).sum()) + gaps.size, np.uint8)
    quotients[np.cumsum((gaps >> low) + 1) - 1] = 1
    remainders = (gaps[:, None] >> np.arange(low)) & 1
    return low, np.packbits(quotients).tobytes() + np.packbits(remainders.astype(np.uint8)).tobytes()


def unpack(packed: memoryview, count: int, low: int, size: int) -> Array:
    """The places again, each below `size`; only what `pack` writes is taken."""
    first = len(packed) - ceil(count * low / 8)  # bytes of the quotients
    if first < 0 or len(packed) > ceil(size / 8) or low > size.bit_length():  # no longer than the bitmap
        raise WireError("wire.shape", f"topk: {len(packed)} bytes for {count} places of {low} bits below {size}")
    bits = np.unpackbits(np.frombuffer(packed[:first], np.uint8))
    ends = np.flatnonzero(bits)
    if ends.size != count or first != ceil((int(ends[-1]) + 1 if count else 0) / 8):
        raise WireError("wire.shape", f"topk: {ends.size} places came, {count} were announced")
    quotients = np.diff(ends, prepend=-1) - 1
    if int(quotients.sum()) << low > size:  # before the shift: it must not overflow
        raise WireError("wire.shape", f"topk: places beyond {size}")
    rest = np.unpackbits(np.frombuffer(packed[first:], np.uint8))
    if rest[count * low :].any():
        raise WireError("wire.shape", "topk: bits behind the last place")
    remainders = np.zeros(count, np.int64)
    for bit, column in enumerate(rest[: count * low].reshape(count, low).T):
        remainders |= column.astype(np.int64) << bit
    places = np.cumsum((quotients << low) + remainders + 1) - 1
    if count and int(places[-1]) >= size:
        raise WireError("wire.shape", f"topk: place {int(places[-1])} of {size}")
    return places


def _bytes(*bits: int) -> int:
    return sum(ceil(n / 8) for n in bits)


def _vector(size: int, places: Array, values: Array, tail: Array) -> Vector:
    """Both sides make it here, so that both see the same bits."""
    v = np.zeros(size, np.float32)
    with np.errstate(invalid="ignore"):  # what is not finite is refused where vectors are judged
        v[places] = values
    v[size - tail.size :] = tail
    return v
