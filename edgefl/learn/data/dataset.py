"""Samples and labels of one holder: a device's private data, or the coordinator's public data."""

from dataclasses import dataclass, replace

import numpy as np

from edgefl.base.vector import Array
from edgefl.learn.tasks.form import PLAIN, Form


@dataclass(frozen=True, slots=True)
class Dataset:
    """`x` is (n, ...), `y` is (n,): class numbers below `classes`, or real targets when `classes` is 0.

    Several real targets are (n, targets). What is neither, and several inputs, are rows that `form` tells how to read.
    """

    x: Array
    y: Array
    classes: int
    class_names: tuple[str, ...] | None = None  # one for each class, where the data name them
    numbered: bool = True  # whether the run file numbers the classes; False: they are in alphabetical order

    target_names: tuple[str, ...] | None = None  # one for each real target, where the data name them
    form: Form = PLAIN

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def targets(self) -> int:
        """How many real numbers are to be predicted of each sample; 1 where it is a class."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    def take(self, rows: Array) -> "Dataset":
        """These rows, copied."""
        return replace(self, x=self.x[rows], y=self.y[rows])

    def counts(self) -> Array:
        """How many samples of each class there are."""
        return np.bincount(self.y, minlength=self.classes)

    def as_targets(self) -> "Dataset":
        """The same samples with their labels as real numbers, whole though they may be."""
        return Dataset(self.x, self.y.astype(np.float32), 0, target_names=self.target_names, form=self.form)
