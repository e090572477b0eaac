"""What a device says of the model it received, where the run's selection looks at it: one number, its loss.

It is measured before training, on the device's own training data or a fixed number of them: their mean loss, or the
root of their mean squared loss, with three digits. These samples are the same in every round and every run, so that a
coordinator cannot subtract what it was told of some from what it was told of others. Devices are asked with every
model, in the plan's additions under a name that no algorithm uses, so that the loop, an emulated fleet and real devices
do the same. The answer has it in its body, which may be sealed.
"""

from math import isfinite, sqrt

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import WireError
from edgefl.base.vector import Array, State, Vector
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import LeftOut, binary_digits, summed_rows
from edgefl.learn.losses import Loss
from edgefl.learn.models.base import Model
from edgefl.learn.selection.base import Kind

NAME = "loss"  # in an answer
BYTES = 8  # that it takes there
SAMPLES = 256  # that a device looks at, at most
LARGEST = 1e12  # that a device is believed for

_TOLD = "selection/loss"
_KINDS: tuple[Kind, ...] = ("mean", "rms")


def asked(kind: Kind | None) -> State:
    """What devices are told with the model: which loss is asked for, if any is."""
    return {} if kind is None else {_TOLD: np.array(_KINDS.index(kind), np.int64)}


def taken(extra: State) -> tuple[State, Kind | None]:
    """The plan's additions without it, and which loss is asked for."""
    if _TOLD not in extra:
        return extra, None
    number = int(extra[_TOLD]) if extra[_TOLD].shape == () else -1
    if not 0 <= number < len(_KINDS):
        raise WireError("task.loss", f"'{_TOLD}' asks for no loss that is known here")
    return {name: array for name, array in extra.items() if name != _TOLD}, _KINDS[number]


def measured(  # noqa: PLR0917 - as `counts.count`, and what is asked for by whom
    kind: Kind, model: Model, w: Vector, data: Dataset, loss: Loss, device: str, left_out: LeftOut = ()
) -> float | None:
    """Return the model's loss on these data, but for the rows that are left out; None where there is none to tell."""
    rows = summed_rows(len(data), left_out)
    if not len(rows):
        return None
    if len(rows) > SAMPLES:
        rows = np.sort(seeds.stream(0, device, "loss").choice(rows, SAMPLES, replace=False))
    data = data if len(rows) == len(data) else data.take(rows)
    z = model.logits(w, data.x)
    if kind == "mean":
        told = float(loss(z, data.y)[0])
    else:
        each = [float(loss(z[i : i + 1], data.y[i : i + 1])[0]) for i in range(len(data))]
        told = sqrt(sum(one * one for one in each) / len(each))
    told = float(binary_digits(np.array(told)))
    return told if isfinite(told) and abs(told) <= LARGEST else None


def arrays(loss: float | None) -> State:
    """As it travels."""
    return {} if loss is None else {NAME: np.array(loss, np.float64)}


def read(named: dict[str, Array]) -> float | None:
    """What an answer says, if it can be used."""
    told = named.get(NAME)
    if told is None:
        return None
    if told.shape != () or told.dtype != np.float64 or not abs(float(told)) <= LARGEST:
        raise WireError("update.loss", f"'{NAME}' must be one number of at most {LARGEST:g}")
    return float(told)
