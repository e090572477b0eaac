"""The data of the reduced experiments, where a run file alone cannot say them: fewer samples, or one fixed division."""

import numpy as np

from edgefl import seeds
from edgefl.data.partition import dirichlet
from edgefl.data.source import Source
from edgefl.data.sources import load
from edgefl.vector import Array


def mnist_thousand_each() -> Source:
    """A thousand images of every class: 1000 devices with one class each then hold ten images."""
    whole = load("mnist")
    return _only(whole, np.concatenate([np.flatnonzero(whole.train.y == c)[:1000] for c in range(10)]))


def fashion_mnist_10000() -> Source:
    """The first ten thousand images."""
    return _only(load("fashion_mnist"), np.arange(10_000))


def mnist_dirichlet_001() -> Source:
    """All images, owned by 100 devices: one fixed draw from Dirichlet(0.01), the same for every seed of a run."""
    whole = load("mnist")
    owner = np.empty(len(whole.train), np.int64)
    for device, rows in enumerate(dirichlet(whole.train.y, 100, 0.01, seeds.stream(0, "partition"))):
        owner[rows] = device
    return Source(whole.train, whole.test, owner, "mnist_dirichlet_001")


def _only(source: Source, rows: Array) -> Source:
    return Source(source.train.take(rows), source.test, None, source.name)
