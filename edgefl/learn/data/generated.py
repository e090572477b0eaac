"""Generated samples, to try things out with before there are real ones."""

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset

SAMPLES = 8


def made_up(
    shape: tuple[int, ...],
    classes: int,
    like: Array,
    *,
    seed: int,
    name: str,
    count: int = SAMPLES,
    targets: int = 1,
) -> Dataset:
    """Return samples with the shape, type and labels of the real ones; each has length one."""
    rng = seeds.stream(seed, "made up", name)
    x: Array = rng.random((count, *shape), np.float32)
    x /= np.sqrt((x.reshape(count, -1) ** 2).sum(axis=1)).reshape(-1, *[1] * len(shape)) + np.float32(1e-6)
    if like.dtype.kind in "iu":
        x = rng.integers(0, int(like.max()) + 1 if len(like) else 2, (count, *shape))
    if classes:
        return Dataset(x, np.arange(count) % classes, classes)
    return Dataset(x, rng.random(count if targets == 1 else (count, targets), np.float32), 0)
