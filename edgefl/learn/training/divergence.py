"""Learning that failed: a loss or a model that is not finite, noticed where it happens, with its likely cause."""

from collections.abc import Callable
from math import isfinite, sqrt
from typing import Any

import numpy as np

from edgefl.base.errors import Diverged
from edgefl.base.vector import Array, Vector
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.tasks.fields import Fields

SCALED = 10.0  # features, and real targets, beyond this were probably never scaled
UNSCALED = 100.0  # beyond this they certainly were not
EXPLODED = 1e6  # times the model: learning has failed, and such a number would overflow the mean
BLOCK = 4096  # samples that are looked at in one go: the mask of a whole image set would be large


def quiet() -> np.errstate:
    """Where numpy need not warn of numbers that are not finite: they are looked for, and said better."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def check_loss(loss: float) -> None:
    """Refuse a loss that is not finite: no gradient of it leads anywhere."""
    if not isfinite(loss):
        raise Diverged(f"the loss is not finite ({loss})")


def is_finite(w: Vector) -> bool:
    """Whether all numbers are finite, in one pass and without a mask; a vector as long as 1e19 counts as infinite."""
    with quiet():
        return isfinite(float(np.dot(w, w)))


def exploded(delta: Vector, model: float) -> str:
    """What is wrong with the length of an update to a model of this length; empty if nothing is."""
    length = _length(delta)
    too_long = not length <= EXPLODED * (1 + model)
    return f"the update has norm {length:.3g}, the model itself {model:.3g}" if too_long else ""


def check_length(delta: Vector, params: Vector) -> None:
    """Refuse an update that is out of all measure: the coordinator would not take it."""
    if not _length(delta) <= EXPLODED and (absurd := exploded(delta, _length(params))):  # mostly it is short for any
        raise Diverged(absurd)


def checked_step(number: int, step: Callable[..., Vector], w: Vector, *batch: Array) -> Vector:
    """The weights after one step of training; one that leaves the finite numbers is named."""
    try:
        with quiet():
            after = step(w, *batch)
    except Diverged as error:
        raise Diverged(f"step {number}: {error}") from None
    if not is_finite(after):
        raise Diverged(f"step {number}: the weights are not finite any more")
    return after


def largest(data: Dataset) -> float:
    """The largest feature there is, in magnitude; token numbers are no quantities."""
    real = _real_columns(data.form.inputs)
    blocks = (data.x[i : i + BLOCK][..., real] for i in range(0, len(data), BLOCK))
    return max((float(max(block.max(), -block.min())) for block in blocks if block.size), default=0.0)


def unscaled(data: Dataset) -> float | None:
    """The largest feature, if it is so large that learning will probably fail."""
    top = largest(data) if data.x.dtype.kind == "f" else 0.0  # token numbers are no quantities
    return top if top > UNSCALED else None


def usual_causes(lr: float | None) -> str:
    """Return what makes learning fail, and what to do, whatever the data are: it is free of data."""
    return (
        "the usual causes are unscaled inputs or targets, and the step size: scale them to about -1 to 1, or lower"
        f" {_named(lr)}"
    )


def likely_cause(data: Dataset, lr: float | None) -> str:
    """Return what most probably made learning on these data fail, and what to do; it quotes them."""
    top, rate = largest(data), _named(lr)
    target = float(np.abs(data.y).max(initial=0.0)) if not data.classes and not data.form.labels else 0.0
    if data.x.dtype.kind == "f" and top > SCALED:
        also = " and targets" if target > SCALED else ""
        return (
            f"the likely cause is unscaled inputs, the largest feature is {top:.6g}: scale features{also} to about -1"
            f" to 1, or lower {rate}"
        )
    if target > SCALED:
        return (
            f"the likely cause is unscaled targets, the largest is {target:.6g}: scale them to about -1 to 1, or lower"
            f" {rate}"
        )
    return f"the likely cause is the step size: lower {rate}"


def _named(lr: float | None) -> str:
    return "algorithm.lr" if lr is None else f"algorithm.lr = {lr:g}"


def _real_columns(inputs: Fields) -> Any:  # Any: an index of numpy's
    """Of rows of several inputs, those that hold real numbers; of one input all."""
    if not inputs:
        return slice(None)
    return np.concatenate([np.full(field.size, not field.whole) for field in inputs])


def _length(v: Vector) -> float:
    """In float32 and without a copy, which will do where a factor of a million is looked for."""
    with quiet():
        return sqrt(float(np.dot(v, v)))
