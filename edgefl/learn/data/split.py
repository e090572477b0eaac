"""Who holds what in a run: every device its part, the coordinator the public part and the test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.partition import Partition, apportion
from edgefl.learn.data.source import Source
from edgefl.learn.data.validation import Validation, cut


@dataclass(frozen=True, slots=True)
class Split:
    """A data set after division."""

    devices: tuple[Dataset, ...]
    public: Dataset
    test: Dataset  # what models are judged by: in a split for choosing among settings, a part of the training data
    set_aside: int = 0  # training samples that no device holds


def divide(source: Source, partition: Partition, public: float, seed: int) -> Split:
    """Return the part of each device: the share `public` of the training part stays at the coordinator.

    A seed always gives the same division, in every process, so devices need not be told their rows.
    """
    kept, rows = _rows(source, partition, public, seed)
    return Split(tuple(source.train.take(r) for r in rows), source.train.take(kept), source.test)


def divide_to_choose(
    source: Source, partition: Partition, public: float, seed: int, *, validation: Validation, names: Sequence[str]
) -> Split:
    """The same, judged by a part of the training data: the source's own test part is nowhere in it."""
    kept, rows = _rows(source, partition, public, seed)
    left, train = cut(kept, rows, names, validation, seed), source.train
    return Split(tuple(train.take(r) for r in left.devices), train.take(left.public), train.take(left.validation))


def part(source: Source, partition: Partition, public: float, seed: int, index: int) -> Dataset:
    """Return what `divide` gives to device number `index`, without copying the other parts."""
    if not 0 <= index < partition.devices:
        raise ConfigError(f"device number {index} is not in the partition; it has 0 to {partition.devices - 1}")
    return source.train.take(_rows(source, partition, public, seed)[1][index])


def _rows(source: Source, partition: Partition, public: float, seed: int) -> tuple[Array, tuple[Array, ...]]:
    train = source.train
    kept = public_rows(train, public, partition.devices, seed)
    rest = np.setdiff1d(np.arange(len(train)), kept)
    groups = None if source.groups is None else source.groups[rest]
    split = partition.split(train.y[rest], groups, seeds.stream(seed, "partition"))
    for device, rows in enumerate(split):
        if len(rows) == 0:
            raise ConfigError(
                f"partition: device {device} of {partition.devices} would hold no sample of '{source.name}' "
                f"({len(rest)} to share); ask for fewer devices or another kind"
            )
    return kept, tuple(rest[rows] for rows in split)


def public_rows(train: Dataset, share: float, devices: int, seed: int) -> Array:
    """The rows that stay at the coordinator: this share, classes in proportion, at least one of each if there is room.

    Room means that a class never loses its last sample and that one sample is left for every device.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"public = {share} is not a share; give a number from 0 up to, but not including, 1")
    if share == 0:
        return np.zeros(0, np.int64)
    labels = train.y if train.classes else np.zeros(len(train), np.int64)
    classes, sizes = np.unique(labels, return_counts=True)
    target = max(round(share * len(train)), len(classes))
    total = max(0, min(target, len(train) - max(devices, len(classes))))
    rng = seeds.stream(seed, "public")
    taken = apportion(sizes, total, sizes - 1)
    picks = [rng.permutation(np.flatnonzero(labels == c))[:k] for c, k in zip(classes, taken, strict=True)]
    return np.sort(np.concatenate(picks))
