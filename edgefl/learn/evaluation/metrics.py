"""What a run is judged by: accuracy, loss, errors, forgetting, and how long it took to get there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edgefl.base.scores import Scored, Scores
from edgefl.base.vector import Array, Vector
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import Loss, cross_entropy
from edgefl.learn.models.base import Model
from edgefl.learn.tasks.kinds import KINDS

BATCH = 512  # samples per forward pass: large enough for BLAS, small enough for a Raspberry Pi
PSNR_CAP = 100.0  # decibels; equal images would have infinitely many


@dataclass(frozen=True, slots=True)
class Evaluation(Scored):
    """How a model does on some data."""

    scores: Scores
    per_class: Array = field(default_factory=lambda: np.zeros(0))  # (classes,); NaN of one without samples
    per_target: tuple[Scores, ...] | None = None  # the errors of each target, by name, where there are several


@dataclass(frozen=True, slots=True)
class Errors:
    """How far real-valued predictions are from their targets; of several, over all of them alike."""

    rmse: float  # root of the mean squared error
    mae: float  # mean absolute error
    r2: (
        float | None
    )  # share of the targets' variance that is explained, its mean over them; None where they do not vary
    per_target: tuple["Errors", ...] = ()  # of each one, where there are several

    @property
    def scores(self) -> dict[str, float | None]:
        """The same by name."""
        return {"rmse": self.rmse, "mae": self.mae, "r2": self.r2}


@dataclass(frozen=True, slots=True)
class Summary:
    """The three numbers of a curve that papers print, the initial model left out."""

    best: float
    last: float
    last_five: float  # mean of the last five rounds: one lucky round does not decide


def logits(model: Model, w: Vector, x: Array, batch: int = BATCH) -> Array:
    """The outputs for all of `x`, one batch at a time."""
    return np.concatenate([model.logits(w, x[i : i + batch]) for i in range(0, len(x), batch)])


def evaluate(model: Model, w: Vector, data: Dataset, loss: Loss = cross_entropy) -> Evaluation:
    """Accuracy, mean loss and accuracy per class of the model on the data."""
    if not len(data):
        raise ValueError("there is nothing to evaluate on: the data set is empty")
    if data.form.kind:
        return _of_kind(model, w, data, loss)
    total, hits, gaps = 0.0, np.zeros(data.classes), []
    for i in range(0, len(data), BATCH):
        x, y = data.x[i : i + BATCH], data.y[i : i + BATCH]
        z = model.logits(w, x)
        total += loss(z, y)[0] * len(y)
        if data.classes:
            hits += np.bincount(y[z.argmax(axis=1) == y], minlength=data.classes)
        else:
            gaps.append(z.reshape(y.shape).astype(np.float64) - y)
    if not data.classes:
        missed = errors(np.concatenate(gaps), data.y)
        each = tuple(one.scores for one in missed.per_target) or None
        return Evaluation({"loss": total / len(data), **missed.scores}, per_target=each)
    counts = data.counts()
    per_class = np.divide(hits, counts, out=np.full(data.classes, np.nan), where=counts > 0)
    balanced = float(per_class[counts > 0].mean())
    accuracy = float(hits.sum() / len(data))
    return Evaluation({"accuracy": accuracy, "balanced_accuracy": balanced, "loss": total / len(data)}, per_class)


def _of_kind(model: Model, w: Vector, data: Dataset, loss: Loss) -> Evaluation:
    """The same by the sums of the task's kind, which devices would count too."""
    total, sums = summed(model, w, data, loss)
    figures = KINDS[data.form.kind].scores(data.form, sums, len(data))
    return Evaluation({**figures, "loss": total / len(data)})


def summed(model: Model, w: Vector, data: Dataset, loss: Loss) -> tuple[float, Array]:
    """The loss summed over the samples, and the sums of the task's kind."""
    kind = KINDS[data.form.kind]
    total, sums = 0.0, np.zeros(kind.shape(data.form))
    for i in range(0, len(data), BATCH):
        x, y = data.x[i : i + BATCH], data.y[i : i + BATCH]
        z = model.logits(w, x)
        total += float(loss(z, y)[0]) * len(y)
        sums += kind.count(data.form, z, y)
    return total, sums


def errors(gaps: Array, targets: Array) -> Errors:
    """The errors of predictions that miss their targets by these gaps, both (n,) or (n, targets)."""
    if gaps.ndim == 2:
        each = tuple(errors(gaps[:, i], targets[:, i]) for i in range(gaps.shape[1]))
        known = [one.r2 for one in each if one.r2 is not None]
        rmse = float(np.sqrt(np.mean([one.rmse**2 for one in each])))
        return Errors(rmse, float(np.mean([one.mae for one in each])), float(np.mean(known)) if known else None, each)
    squared = float((gaps * gaps).mean())
    variance = float(np.asarray(targets, np.float64).var())
    return Errors(float(np.sqrt(squared)), float(np.abs(gaps).mean()), 1 - squared / variance if variance else None)


def forgetting(before: Array, after: Array) -> float:
    """How much per-class accuracy was lost from one model to the next, gains not counted against it (Flashback).

    Classes without test samples are NaN and left out; without any class nothing can be forgotten.
    """
    change = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    change = change[~np.isnan(change)]
    return float(np.maximum(0.0, -change).mean()) if change.size else 0.0


def round_forgetting(acc: Array) -> Array:
    """Forgetting from each round to the next: T-1 values for the (T, classes) history of rounds 1..T."""
    history = np.atleast_2d(np.asarray(acc, np.float64))
    return np.array([forgetting(history[t - 1], history[t]) for t in range(1, len(history))])


def local_forgetting(received: Array, locals_: Sequence[Array]) -> float:
    """What the devices forgot while they trained: from the received model to each local one, averaged."""
    return float(np.mean([forgetting(received, local) for local in locals_])) if locals_ else 0.0


def aggregation_forgetting(locals_: Sequence[Array], merged: Array) -> float:
    """What merging forgot: from each local model to the merged one, averaged."""
    return float(np.mean([forgetting(local, merged) for local in locals_])) if locals_ else 0.0


def fedntd_forgetting(acc: Array) -> float:
    """Mean over the classes of the best accuracy before the last round minus the last; negative if that is best."""
    history = np.asarray(acc, np.float64)
    history = history[:, ~np.isnan(history).any(axis=0)]
    if len(history) < 2 or not history.size:
        return 0.0
    return float((history[:-1].max(axis=0) - history[-1]).mean())


def loss_increase(before: Sequence[float], after: Sequence[Sequence[float]]) -> float:
    """How much the devices of the last round lost to this round's local training, averaged over them (FedReg).

    `before[i]` is the loss of the global model on the data of device i, sampled in round t-1; `after[i]` are the
    losses of the local models of round t on the same data.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} losses before and {len(after)} after; one of each per device is needed")
    return float(np.mean([np.mean(then) - now for now, then in zip(before, after, strict=True)]))


def rounds_to(curve: Sequence[float], level: float) -> int | None:
    """The smallest t with curve[t] >= level, or None; curve[t] is the accuracy after t aggregations."""
    return next((t for t, value in enumerate(curve) if value >= level), None)


def summary(curve: Sequence[float], *, lower: bool = False) -> Summary:
    """Best, last and mean of the last five rounds of a curve whose first entry is the initial model.

    With `lower` the lowest value is the best, as of a loss.
    """
    rounds = np.asarray(curve[1:] if len(curve) > 1 else curve, np.float64)
    return Summary(float(rounds.min() if lower else rounds.max()), float(rounds[-1]), float(rounds[-5:].mean()))


def psnr(a: Array, b: Array) -> float:
    """Peak signal-to-noise ratio in decibels of two images in [0, 1], at most 100."""
    error = float(np.mean((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2))
    return PSNR_CAP if error == 0 else min(PSNR_CAP, float(-10 * np.log10(error)))
