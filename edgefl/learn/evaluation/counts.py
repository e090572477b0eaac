"""What a device saw of a model on data that it set aside: counts and sums, never samples.

    table   classes      how many samples of each class (rows) were taken for which (columns)
            many of them the same as hits and misses: a matrix of a thousand classes would be larger than the model
            targets      [[samples]], and so of every other kind of task
    loss    summed over the samples
    sums    targets      of the gaps' absolute values and squares, of the targets and their squares: (4, targets)
            other kinds  what the kind counts (edgefl/tasks)

Counts of several devices add up to those of all their samples together (edgefl/learn/evaluation/fleet.py).
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, State, Vector
from edgefl.learn.contract import Counts, Seen
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import binary_digits
from edgefl.learn.evaluation.metrics import BATCH, summed
from edgefl.learn.losses import Loss
from edgefl.learn.models.base import Model
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import KINDS

MATRIX = 100  # classes up to which a device sends who was taken for whom
MOST = 2**31  # samples of a device
LARGEST = 1e30  # of a sum
LOSS_DIGITS = 14  # binary ones that are told of a summed loss: four decimal ones, as curves show
SUM_DIGITS = 24  # of other sums: R2 is a small difference of large ones
ROUNDING = 1e-6  # relative: by so much sums may disagree with each other


def count(model: Model, w: Vector, data: Dataset, loss: Loss) -> Counts:
    """What the model says to the data, counted."""
    if data.form.kind:
        lost, of_kind = summed(model, w, data, loss)
        return _rounded(Counts(np.array([[len(data)]]), lost, of_kind))
    total, table, sums = 0.0, np.zeros(table_shape(data.classes), np.int64), np.zeros((4, 0))
    for i in range(0, len(data), BATCH):
        x, y = data.x[i : i + BATCH], data.y[i : i + BATCH]
        z = model.logits(w, x)
        total += float(loss(z, y)[0]) * len(y)
        if data.classes:
            taken = z.argmax(axis=1)
            columns = taken if data.classes <= MATRIX else (taken != y).astype(np.int64)
            np.add.at(table, (y, columns), 1)
        else:
            table += len(y)
            part = _errors(z.reshape(len(y), -1), y.reshape(len(y), -1))
            sums = part if not i else sums + part
    return _rounded(Counts(table, total, sums))


def _rounded(counts: Counts) -> Counts:
    """Return them with the digits that evaluation needs; whole numbers are counts, and stay as they are."""
    sums = np.where(counts.sums == np.rint(counts.sums), counts.sums, binary_digits(counts.sums, SUM_DIGITS))
    return Counts(counts.table, float(binary_digits(np.array(counts.loss), LOSS_DIGITS)), sums)


def table_shape(classes: int) -> tuple[int, int]:
    """Return the shape of the table of a task with this number of classes; of real targets where there are none."""
    return (1, 1) if not classes else (classes, classes if classes <= MATRIX else 2)


def numbers(classes: int, targets: int, form: Form = PLAIN) -> int:
    """How many numbers the counts of one model have."""
    rows, columns = table_shape(classes)
    if form.kind:
        return 2 + prod(KINDS[form.kind].shape(form))
    return rows * columns + 1 + (0 if classes else 4 * targets)


def arrays(counts: Counts) -> State:
    """The counts, as they travel."""
    return {"table": counts.table, "loss": np.array(counts.loss, np.float64), "sums": counts.sums}


def read(named: Mapping[str, Array]) -> Counts:
    """The counts behind these arrays; what stands in them is not looked at."""
    kinds = {"table": ("<i8", 2), "loss": ("<f8", 0), "sums": ("<f8", 2)}
    if {name: (array.dtype.str, array.ndim) for name, array in named.items()} != kinds:
        shown = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in sorted(named.items()))
        raise WireError("update.counts", f"counts have a table, a loss and sums; these are {shown}")
    return Counts(named["table"].astype(np.int64), float(named["loss"]), named["sums"].astype(np.float64))


def check(seen: Seen, classes: int, targets: int, form: Form = PLAIN) -> None:
    """Refuse what no device can have counted; a possible lie cannot be told from the truth."""
    sums_shape = KINDS[form.kind].shape(form) if form.kind else (4, 0 if classes else targets)
    for counts in (seen.received, seen.trained):
        if counts is not None:
            _check(counts, table_shape(classes), sums_shape)
            _must_agree(counts.sums, counts.samples, form)
    if seen.trained is not None:
        here, there = seen.received.table.sum(axis=1), seen.trained.table.sum(axis=1)
        held = KINDS[form.kind].held if form.kind else _of_targets
        if not np.array_equal(here, there) or not np.array_equal(held(seen.received.sums), held(seen.trained.sums)):
            raise WireError("update.counts", "the received and the trained model were not shown the same samples")


def _check(counts: Counts, shape: tuple[int, int], sums_shape: tuple[int, int]) -> None:
    table, sums = counts.table, counts.sums
    if table.shape != shape or sums.shape != sums_shape:
        raise WireError(
            "update.counts", f"a table {table.shape} and sums {sums.shape}, expected {shape} and {sums_shape}"
        )
    if (table < 0).any() or (table > MOST).any() or not 1 <= int(table.sum()) <= MOST:
        raise WireError("update.counts", f"a number of samples is negative, none at all, or larger than {MOST}")
    if not (np.isfinite(sums).all() and np.abs(sums).max(initial=abs(counts.loss)) <= LARGEST):  # nor is NaN
        raise WireError("update.counts", "a sum is not finite, or far too large")


def _errors(z: Array, y: Array) -> Array:
    """Of each target: summed gaps, their squares, the targets and theirs."""
    targets = y.astype(np.float64)
    gaps = z[:, : y.shape[1]].astype(np.float64) - targets
    return np.stack(
        [np.abs(gaps).sum(axis=0), (gaps * gaps).sum(axis=0), targets.sum(axis=0), (targets**2).sum(axis=0)]
    )


def _of_targets(sums: Array) -> Array:
    """What of the sums over real targets is the same for every model."""
    return np.asarray(sums[2:])


def _must_agree(sums: Array, samples: int, form: Form) -> None:
    """A sum of squares is not negative, and at least the square of the sum over their number (Cauchy, Schwarz)."""
    if form.kind:
        if not KINDS[form.kind].possible(form, sums, samples):
            raise WireError("update.counts", f"no {samples} samples of a task '{form.kind}' have such sums")
        return
    gaps, squares, targets, target_squares = sums
    if (gaps < 0).any():
        raise WireError("update.counts", "a sum of absolute values is negative")
    for total, squared in ((gaps, squares), (targets, target_squares)):
        if (total * total > squared * samples * (1 + ROUNDING)).any():
            raise WireError("update.counts", "a sum of squares is smaller than its samples allow")
