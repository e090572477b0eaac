"""Labels in whole numbers, looked at: what shape they have, and whether they are what a task takes."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported


def label_shape(data: "Dataset", kind: str, where: str) -> tuple[int, ...]:
    """The shape of one label, where there is one for each sample."""
    labels = data.form.labels
    if len(labels) > 1 or (labels and labels[0].name):
        names = ", ".join(field.name for field in labels)
        raise ConfigError(f"{where}: has labels by name ({names}), task.kind = '{kind}' takes one array; use 'heads'")
    return labels[0].shape if labels else tuple(data.y.shape[1:])


def whole(y: Array, where: str, what: str, *, least: int, below: int) -> Array:
    """The labels as rows, if all are whole numbers from `least` up to `below`, which is not one of them."""
    rows = y.reshape(len(y), prod(y.shape[1:])).astype(np.float32)
    low, high = float(rows.min(initial=least)), float(rows.max(initial=least))
    if not (least <= low and high < below and bool((rows == np.floor(rows)).all())):
        raise ConfigError(
            f"{where}: its labels are no {what}, which are whole numbers from {least} to {below - 1}",
            told=f"its labels are no {what}, which are whole numbers from {least} to {below - 1}",
        )
    return rows


def classes_of(parts: "Sequence[Dataset]", classes: int | None) -> int:
    """How many classes there are: as many as the run file says, or as the labels need."""
    return classes or max(int(part.y.max(initial=0)) for part in parts) + 1


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def share(part: float, of: float) -> float | None:
    """What part of it, where there is any."""
    return float(part / of) if of else None
