"""Samples to compare a written model with the one it came from, where there are no real ones."""

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array
from edgefl.learn.models.base import Model
from edgefl.learn.models.normalised import Normalised

SHOWN = 64  # samples on which the file is compared with the model


def made_up(model: Model, sample: tuple[int, ...], *, tokens: bool) -> Array:
    """Samples of the right shape, type and size, where there are no real ones."""
    shape, rng = (SHOWN, *sample), seeds.stream(0, "export")
    if tokens:
        return np.zeros(shape, np.int64) + rng.integers(0, 2, shape)
    x = rng.standard_normal(shape).astype(np.float32)
    return model.raw(x) if isinstance(model, Normalised) else x
