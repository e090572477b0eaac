"""Anomaly detection: an autoencoder learns how a machine sounds when it is well, and cannot repeat what is not."""

import numpy as np
from torch import nn


def data():
    """Samples of 24 numbers to train on, all ordinary, and to test on; there, one in five is marked as an anomaly."""
    rng = np.random.default_rng(0)
    ways = rng.normal(size=(3, 24)) / 3
    x, x_test = (rng.normal(size=(n, 3)) @ ways + rng.normal(0, 0.05, (n, 24)) for n in (240, 80))
    odd = np.arange(80) % 5 == 0
    x_test[odd] += rng.normal(0, 0.25, (odd.sum(), 24))
    return x.astype(np.float32), np.zeros(240, np.int64), x_test.astype(np.float32), odd.astype(np.int64)


class Network(nn.Sequential):
    """Through three numbers and back."""

    def __init__(self, shape, outputs):
        super().__init__(nn.Linear(shape[0], 3), nn.Linear(3, outputs))
