"""The counts of many devices as one evaluation: the same numbers in every driver, in whatever order answers came.

Devices are added up by name. None counts for more samples than `guards.weight_cap` times the usual number, as in
merging: a device that lies shifts the figures of the fleet by its share, and no further.
"""

from collections.abc import Mapping, Sequence
from math import ceil, fsum, inf, sqrt
from typing import Any

import numpy as np

from edgefl.base.scores import Scores
from edgefl.base.vector import Array
from edgefl.learn.contract import Counts, Seen
from edgefl.learn.evaluation.figures import chief
from edgefl.learn.robustness import lower_median
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import KINDS

ROUNDING = 1e-12  # of a sum of squares: targets that vary by less do not vary
FINER = ("balanced_accuracy", "mae", "r2")  # figures that are not told of single devices and of their own models
SPREAD = 3  # devices from which on it is told how far they are apart


def evaluated(
    seen: Mapping[str, Seen],
    *,
    classes: int,
    form: Form = PLAIN,
    cap: float = inf,
    per_device: bool = False,
    speaks_for: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The fields of `events.Evaluated` that follow from what the devices saw; a gateway saw it for several."""
    by_name = dict(sorted(seen.items()))
    if not by_name:
        return {}
    behind = {name: (speaks_for or {}).get(name, 1) for name in by_name}
    usual = lower_median(one.received.samples / behind[name] for name, one in by_name.items())
    most = {name: cap * usual * count if len(by_name) > 1 else inf for name, count in behind.items()}
    whole = total([limited(one.received, most[name]) for name, one in by_name.items()])
    local = total([limited(one.trained, most[name]) for name, one in by_name.items() if one.trained])
    told: dict[str, Any] = {**scores(whole, classes, form), "samples": whole.samples, "devices": sum(behind.values())}
    told["bounded"] = sum(behind[name] for name, one in by_name.items() if one.received.samples > most[name])
    told |= {"local_scores": headline(local, classes, form)} if local.samples else {}
    told |= _apart([scores(one.received, classes, form)["scores"] for one in by_name.values()])
    if classes and whole.table.shape[1] == classes:
        told["confusion"] = tuple(tuple(round(cell) for cell in row) for row in whole.table.tolist())
    if per_device:
        told["per_device"] = {device: _row(one, classes, form) for device, one in by_name.items()}
    return told


def total(counts: Sequence[Counts]) -> Counts:
    """The counts of all samples together."""
    if not counts:
        return Counts(np.zeros((1, 1), np.int64), 0.0, np.zeros((4, 0)))
    table: Array = np.sum([one.table for one in counts], axis=0)
    sums = np.stack([one.sums for one in counts])
    exact = [fsum(column) for column in sums.reshape(len(counts), -1).T.tolist()]
    return Counts(table, fsum(one.loss for one in counts), np.array(exact).reshape(sums.shape[1:]))


def limited(counts: Counts, most: float) -> Counts:
    """Return the counts scaled down to at most this number of samples."""
    if counts.samples <= most:
        return counts
    share = most / counts.samples
    return Counts(counts.table * share, counts.loss * share, counts.sums * share)


def scores(counts: Counts, classes: int, form: Form = PLAIN) -> dict[str, Any]:
    """What a model is worth by these counts: its figures, and those of each class or target where there are several."""
    samples = counts.table.sum().item()
    loss = counts.loss / samples
    if form.kind:
        return {"scores": {**KINDS[form.kind].scores(form, counts.sums, samples), "loss": loss}}
    if not classes:
        figures, each = errors(counts)
        return {"scores": {"loss": loss, **figures}, "per_target": each if len(each) > 1 else None}
    hits, held = hits_per_class(counts, classes), counts.table.sum(axis=1)
    shares = [hit / of if of else None for hit, of in zip(hits.tolist(), held.tolist(), strict=True)]
    known = [share for share in shares if share is not None]
    figures = {"accuracy": hits.sum().item() / samples, "balanced_accuracy": fsum(known) / len(known), "loss": loss}
    return {"scores": figures, "per_class": tuple(None if share is None else round(share, 6) for share in shares)}


def errors(counts: Counts) -> tuple[dict[str, float | None], tuple[dict[str, float | None], ...]]:
    """RMSE, MAE and R2: over all targets alike, and of each one."""
    samples, sums = counts.table.sum().item(), counts.sums.T.tolist()
    each = tuple(_target(samples, *one) for one in sums)
    gaps, squares = fsum(one[0] for one in sums), fsum(one[1] for one in sums)
    known = [one["r2"] for one in each if one["r2"] is not None]
    return {
        "rmse": sqrt(squares / samples / len(each)),
        "mae": gaps / samples / len(each),
        "r2": fsum(known) / len(known) if known else None,
    }, each


def _target(
    samples: float, gaps: float, squares: float, targets: float, target_squares: float
) -> dict[str, float | None]:
    variation = target_squares - targets * targets / samples
    varies = variation > ROUNDING * target_squares
    return {"mae": gaps / samples, "rmse": sqrt(squares / samples), "r2": 1 - squares / variation if varies else None}


def headline(counts: Counts, classes: int, form: Form = PLAIN) -> dict[str, float | None]:
    """The few figures that stand for a model: without the finer ones of classes and real targets."""
    known: Scores = scores(counts, classes, form)["scores"]
    return {name: value for name, value in known.items() if name not in FINER}


def hits_per_class(counts: Counts, classes: int) -> Array:
    """How many samples of each class were taken for what they are."""
    return counts.table.diagonal() if counts.table.shape[1] == classes else counts.table[:, 0]


def _apart(each: Sequence[Scores]) -> dict[str, float]:
    """How far devices are apart by what they are chiefly judged by, where all of them know it."""
    chiefs = [chief(one) for one in each]
    known = [one for one in chiefs if one is not None and one.value is not None]
    if len(known) < len(each) or not known:
        return {}
    return spread([one.value for one in known if one.value is not None], lower=not known[0].metric.higher)


def spread(figures: Sequence[float], *, lower: bool) -> dict[str, float]:
    """Return the median device and the mean of the worst tenth; nothing where that would tell of one device."""
    if len(figures) < SPREAD:
        return {}
    ordered = sorted(figures, reverse=lower)
    worst = ordered[: ceil(len(ordered) / 10)]
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return {"worst_tenth": fsum(worst) / len(worst), "median": middle}


def _row(one: Seen, classes: int, form: Form) -> dict[str, float]:
    """One device's figures as far as they are known, under their own names."""
    local = headline(one.trained, classes, form) if one.trained else {}
    known = {**headline(one.received, classes, form), **{f"local_{name}": value for name, value in local.items()}}
    return {"samples": one.received.samples} | {name: value for name, value in known.items() if value is not None}
