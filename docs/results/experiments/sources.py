"""The data of the reduced experiments, where a run file alone cannot say them.

Images are tested on every fifth one only: looking at all 10,000 after each round would cost more than the training.
"""

from functools import partial

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array
from edgefl.learn.data.catalog import data_root, load
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.partition import dirichlet
from edgefl.learn.data.source import Source

TEST = slice(None, None, 5)


def mnist() -> Source:
    """All images to train on."""
    return _some("mnist")


def mnist_thousand_each() -> Source:
    """A thousand images of every class: 1000 devices with one class each then hold ten images."""
    y = load("mnist").train.y
    return _some("mnist", np.concatenate([np.flatnonzero(y == c)[:1000] for c in range(10)]))


def mnist_dirichlet(division: int = 0) -> Source:
    """All images, owned by 100 devices: a fixed draw from Dirichlet(0.01), the same for every seed of a run."""
    whole = mnist()
    owner = np.empty(len(whole.train), np.int64)
    for device, rows in enumerate(dirichlet(whole.train.y, 100, 0.01, seeds.stream(division, "partition"))):
        owner[rows] = device
    return Source(whole.train, whole.test, owner, whole.name)


mnist_dirichlet_1 = partial(mnist_dirichlet, division=1)
mnist_dirichlet_2 = partial(mnist_dirichlet, division=2)
mnist_dirichlet_3 = partial(mnist_dirichlet, division=3)
mnist_dirichlet_4 = partial(mnist_dirichlet, division=4)


def fashion_mnist_10000() -> Source:
    """The first ten thousand images."""
    return _some("fashion_mnist", np.arange(10_000))


def upcycled_synthetic(name: str) -> Source:
    """One of the sets that Upcycled-FL was published with, 30 devices each; its file is looked for in the data root."""
    return load(f"npz:{(data_root() / 'upcycled_synthetic' / name).absolute()}.npz")


upcycled_iid = partial(upcycled_synthetic, "iid")
upcycled_00 = partial(upcycled_synthetic, "0_0")
upcycled_55 = partial(upcycled_synthetic, "0.5_0.5")
upcycled_11 = partial(upcycled_synthetic, "1_1")


def at_most_one_long(whole: Source) -> Source:
    """The same samples, each shortened by itself to length 1 if it is longer: objective perturbation asks for that."""

    def ready(part: Dataset) -> Dataset:
        return Dataset(part.x / np.maximum(1, np.linalg.norm(part.x, axis=1, keepdims=True)), part.y, part.classes)

    return Source(ready(whole.train), ready(whole.test), whole.groups, f"{whole.name}, at most 1 long")


def upcycled_short(name: str) -> Source:
    """One of Upcycled-FL's sets with such samples."""
    return at_most_one_long(upcycled_synthetic(name))


upcycled_iid_short = partial(upcycled_short, "iid")
upcycled_00_short = partial(upcycled_short, "0_0")
upcycled_55_short = partial(upcycled_short, "0.5_0.5")
upcycled_11_short = partial(upcycled_short, "1_1")


def uci_har_statistics() -> Source:
    """UCI HAR by person, each window as six statistics of each channel: a linear model then goes a long way."""
    whole = load("uci_har")
    learn = _statistics(whole.train.x)
    mean, spread = learn.mean(axis=0), learn.std(axis=0)

    def ready(part: Dataset) -> Dataset:
        return Dataset(((_statistics(part.x) - mean) / spread).astype(np.float32), part.y, part.classes)

    return Source(ready(whole.train), ready(whole.test), whole.groups, "uci_har_statistics")


def _statistics(x: Array) -> Array:
    """Mean, spread, least, largest, mean step and mean square of each channel."""
    steps = np.abs(np.diff(x, axis=2)).mean(axis=2)
    return np.concatenate(
        [x.mean(axis=2), x.std(axis=2), x.min(axis=2), x.max(axis=2), steps, (x**2).mean(axis=2)], axis=1
    )


def _some(name: str, rows: Array | None = None) -> Source:
    """A data set with only these rows to train on, all unless said."""
    whole = load(name)
    test = whole.test.take(np.arange(len(whole.test))[TEST])
    return Source(whole.train if rows is None else whole.train.take(rows), test, None, name)
