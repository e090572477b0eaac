"""From numbers to bytes and back: the run's codec, and error feedback, which corrects the error of a lossy codec.

The device keeps the error of an update (the residual) under `wire/residual`, and adds it to the next update before that
is encoded. It does so for any codec: a run that is resumed with a lossless codec still sends the last residual.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Layout, State, Vector
from edgefl.job.transforms.transform import DeviceContext, OnNumbers, Transform
from edgefl.learn.contract import Update
from edgefl.wire import tensors
from edgefl.wire.codecs import Codec, beside
from edgefl.wire.messages import Tensor

DELTA, EXTRA = "delta", "extra/"  # names in an answer: of the update, and before those of arrays beside it
RESIDUAL = "wire/residual"  # in the device's state; no algorithm sees it


@dataclass(frozen=True, slots=True)
class Coded:
    """Named arrays on the wire: how they are described, their bytes, and the arrays as the receiver will have them."""

    described: tuple[Tensor, ...]
    parts: tuple[bytes | memoryview, ...]
    arrays: State

    def __add__(self, other: "Coded") -> "Coded":
        return Coded(self.described + other.described, self.parts + other.parts, {**self.arrays, **other.arrays})


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback(OnNumbers):
    """Add the residual of the last update to this one; `Coding` keeps the residual of this one."""

    name: str = "error feedback"

    def device(self, update: Update, kept: State, context: DeviceContext) -> tuple[Update, State]:
        if RESIDUAL not in context.state:
            return update, kept
        return replace(update, delta=update.delta + context.state[RESIDUAL]), kept


@dataclass(frozen=True, kw_only=True)
class Coding(Transform):
    """The codec of a run's updates. Each update is decoded by itself; a sum of lossy ones would need their scales."""

    codec: Codec

    def device(self, update: Update, kept: State, context: DeviceContext) -> tuple[Coded, State]:
        """Return the encoded update, and what the device keeps; with a lossy codec that includes the residual."""
        chance = None
        if not self.codec.lossless:
            chance = seeds.stream(context.seed, context.round, context.device, "codec")
        coded = encoded((DELTA, update.delta), update.extra, self.codec, context.layout, chance)
        if self.codec.lossless:
            return coded, kept
        return coded, {**kept, RESIDUAL: update.delta - coded.arrays[DELTA]}

    def coordinator(self, described: Sequence[Tensor], body: memoryview, size: int) -> State:
        """Return the arrays of an answer, whose update has this size."""
        return tensors.decode(described, body, {DELTA: size}, self.codec)

    def beside(self, arrays: State) -> Coded:
        """Return the arrays of an answer besides the update, encoded."""
        return Coded(*tensors.encode(arrays, beside(self.codec)))


def coding(codec: Codec) -> Coding:
    """Return the transform of a codec."""
    name = f"wire.up.codec = '{codec.name}'"
    return Coding(name=name, needs_single=True, commutes=codec.lossless, codec=codec)


def encoded(
    named: tuple[str, Vector],
    extra: State,
    codec: Codec,
    layout: Layout | None,
    rng: np.random.Generator | None = None,
) -> Coded:
    """Encode a vector of the model and the arrays that an algorithm adds to it."""
    name, v = named
    others = {EXTRA + key: array for key, array in extra.items()}
    return Coded(*tensors.encode({name: v}, codec, layout, rng)) + Coded(*tensors.encode(others, beside(codec)))
