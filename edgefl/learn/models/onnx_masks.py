"""Dropout masks, drawn from a stream that depends on nothing but the weights and the samples."""

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from edgefl.base.vector import Array, Vector
from edgefl.learn.models.onnx.bundle import Mask


def drawn(masks: Sequence[Mask], weights: Callable[[], Vector], x: Array) -> dict[str, Array]:
    """The masks of one pass over `x`; the weights are asked for only if there are any."""
    if not masks:
        return {}
    w = weights()
    some = w[:: 1 + len(w) // 1024].tobytes()
    rng = np.random.Generator(np.random.PCG64(crc32(some, crc32(x.tobytes()))))
    ones = {}
    for mask in masks:
        shape = [-d * len(x) if d < 0 else d for d in mask.shape]
        ones[mask.name] = (rng.random(shape, np.float32) < mask.keep).astype(np.float32)
    return ones
