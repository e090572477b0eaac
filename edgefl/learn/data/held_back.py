"""What a device of a trial sets aside of its part, where models are evaluated on devices."""

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset


def set_aside(data: Dataset, share: float, seed: int, device: str) -> tuple[Dataset, Dataset]:
    """The samples to train on and those set aside: the same ones in every round and every driver."""
    trained_on, aside = rows_set_aside(len(data), share, seed, device)
    return data.take(trained_on), data.take(aside)


def rows_set_aside(samples: int, share: float, seed: int, device: str) -> tuple[Array, Array]:
    """Return the row numbers that are set aside, of this number of samples."""
    order, count = seeds.stream(seed, device, "held back").permutation(samples), aside_of(samples, share)
    return np.sort(order[count:]), np.sort(order[:count])


def aside_of(samples: int, share: float) -> int:
    """Return how many of `samples` are set aside; at least one is trained on."""
    return min(round(share * samples), samples - 1)
