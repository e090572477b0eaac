"""Whether a loss of the user's gives the gradient of what it says: asked once, before a run begins.

A wrong gradient is no error anywhere: the run learns something else, or nothing. So a few of its numbers, drawn by
chance, are compared with differences of the loss itself, in double precision.
"""

from typing import Any

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.losses import OURS, Loss
from edgefl.learn.session_objects import shown
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.fields import Field, Fields

SAMPLES = 4  # of one trial
LOOKED_AT = 16  # numbers of the gradient of each output
STEP = 1e-3  # to both sides
TOLERANCE = 0.01  # of the largest number of the gradient there; a loss that computes in float32 stays below it
TRIALS = 3  # a kink may lie between the two sides: then another place is asked


def check_gradient(name: str, loss: Loss, y: Array, outputs: int, parts: Fields = ()) -> None:
    """Raise `ConfigError` if the analytic gradient of a user's loss differs from the numeric one."""
    if name in OURS or not len(y):
        return
    some = y[np.linspace(0, len(y) - 1, SAMPLES).astype(int)]
    complaint = ""
    for trial in range(TRIALS):
        rng = seeds.stream(0, "loss check", trial)
        if not (complaint := _difference(name, loss, rng.standard_normal((SAMPLES, outputs)), some, parts)):
            return
    raise ConfigError(f"task.loss = '{shown(name)}': {complaint}")


def _difference(name: str, loss: Loss, z: Array, y: Array, parts: Fields) -> str:
    """Where the gradient differs most from what the loss itself says; empty where it does not."""
    value, dz = _asked(name, loss, z, y)
    if dz.shape != z.shape:
        return f"its gradient has shape {dz.shape}, the outputs have {z.shape}; give one number for each"
    if not (np.isfinite(value) and np.isfinite(dz).all()):
        return f"it gives {value} and a gradient that is not finite on ordinary outputs; correct it"
    parts = parts or (Field("", (z.shape[1],)),)
    return next(filter(None, (_differs(name, loss, z, y, dz, parts, part) for part in range(len(parts)))), "")


def _differs(  # noqa: PLR0917 - a loss, where it is looked at, and what it said there
    name: str, loss: Loss, z: Array, y: Array, dz: Array, parts: Fields, part: int
) -> str:
    """The same of one output."""
    size, start = parts[part].size, fields.starts(parts)[part]
    largest, worst = 0.0, (0.0, 0, 0, 0.0, 0.0)
    for place in seeds.stream(0, "loss check", "places").permutation(len(z) * size)[:LOOKED_AT]:
        row, column = int(place) // size, start + int(place) % size
        step = np.zeros_like(z)
        step[row, column] = STEP
        rise = (_asked(name, loss, z + step, y)[0] - _asked(name, loss, z - step, y)[0]) / (2 * STEP)
        told = float(dz[row, column])
        largest = max(largest, abs(rise), abs(told))
        worst = max(worst, (abs(rise - told), row, column, told, rise))
    gap, row, column, told, rise = worst
    if gap <= TOLERANCE * max(largest, 1e-6):
        return ""
    return (
        f"its gradient for {fields.place(parts, column)} of sample {row} is {told:.6g}, but the loss itself changes by"
        f" {rise:.6g} there; correct the second value that it returns"
    )


def _asked(name: str, loss: Loss, z: Array, y: Array) -> tuple[float, Array]:
    try:
        answer: Any = loss(z, y)
        value, dz = answer
        return float(value), np.asarray(dz, np.float64)
    except Exception as error:  # the user's function may raise anything
        raise ConfigError(
            f"task.loss = '{shown(name)}' fails on outputs {z.shape} and labels {y.shape}: {type(error).__name__}:"
            f" {error}; it takes outputs and labels (numpy) and returns the batch mean and its gradient"
        ) from error
