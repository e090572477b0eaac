"""What a device of a trial sets aside of its part, where models are evaluated on devices."""

import numpy as np

from edgefl import seeds
from edgefl.data.dataset import Dataset


def set_aside(data: Dataset, share: float, seed: int, device: str) -> tuple[Dataset, Dataset]:
    """The samples to train on and those set aside: the same ones in every round and every driver."""
    order, count = seeds.stream(seed, device, "held back").permutation(len(data)), aside_of(len(data), share)
    return data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))


def aside_of(samples: int, share: float) -> int:
    """How many of so many samples are set aside; one at least is trained on."""
    return min(round(share * samples), samples - 1)
