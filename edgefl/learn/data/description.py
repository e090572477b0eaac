"""What a fleet says once about its data: how large its features are, and how many samples of each class it has.

A device sends, where a run asks for it (`task.normalise = "fleet"`, `task.class_weights = "balanced"`):

    samples   how many it has; 0 if it says nothing: it has too few, or its operator does not want it
    mean      of each feature, or channel
    squares   of each, summed: the squared distances from that mean
    classes   samples of each class

Never a sample. Two things keep a sample from being computed from several descriptions: a device describes no fewer than
ten samples, and describes them anew only where ten are different (device_agent/shell/descriptions.py); and numbers are
rounded to what normalising needs (`rounded`). The coordinator puts these together; the result does not depend on the
order in which they came.
"""

from collections.abc import Mapping
from math import fsum, inf
from typing import TypeAlias

import numpy as np

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, State
from edgefl.learn.data.dataset import Dataset

FEWEST = 10  # samples of a device that says something: the mean of a few is almost a sample
BLOCK = 1024  # samples that are widened to double precision at once
LARGEST = 1e18  # of a feature: beyond it, squares leave the finite numbers of float32
MOST = 2**40  # samples of a device
CONSTANT = 1e-6  # times its mean: a feature that deviates less does not vary, and is not stretched
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0  # of a class
DIGITS = 10  # binary ones that are told of a deviation and of a number of samples: three decimal ones
GRAIN = 8  # binary digits by which the steps of a mean are finer than the deviation: an error of .4 % of it at most
LeftOut: TypeAlias = tuple[int, ...] | None  # rows that no sum is over that leaves the device; None: all of them
KEYS = ("samples", "mean", "squares", "classes")


def describe(data: Dataset, *, features: bool, classes: bool, silent: bool = False) -> State:
    """Return what a device says of its data, rounded: the same in every driver."""
    channels = data.shape[0] if features else 0
    n = 0 if silent or len(data) < FEWEST else len(data)
    mean, squares = _moments(data.x) if features and n else (np.zeros(channels), np.zeros(channels))
    counts = data.counts() if classes and n else np.zeros(data.classes if classes else 0)
    told = {"samples": np.array([n], np.int64), "mean": mean, "squares": squares, "classes": counts.astype(np.int64)}
    return rounded(told, data.x.size // max(1, len(data) * data.shape[0]) if features else 1)


def rounded(told: State, values: int) -> State:
    """Return the description with about three digits of each number; a sample has `values` numbers in each channel.

    A mean has steps that the deviation sets: three digits of 1013.25 hPa alone would be no mean of air pressure. Steps
    are powers of two, so that rounding is exact and the same on every processor.
    """
    n, mean, counts = int(told["samples"][0]), told["mean"], binary_digits(told["classes"].astype(np.float64))
    deviation = binary_digits(np.sqrt(told["squares"] / max(1, n * values)))
    steps = np.ldexp(1.0, np.frexp(np.maximum(deviation, CONSTANT * np.abs(mean)))[1] - GRAIN)
    n = int(counts.sum()) if len(counts) else int(binary_digits(np.array([float(n)]))[0])
    return {
        "samples": np.array([n], np.int64),
        "mean": np.rint(mean / steps) * steps,
        "squares": deviation * deviation * float(n * values),
        "classes": counts.astype(np.int64),
    }


def part(told: Mapping[str, Array], *, features: bool, classes: bool) -> State:
    """Return what is asked for of a description that has everything."""
    kept = {"samples": True, "mean": features, "squares": features, "classes": classes}
    return {key: told[key] if kept[key] else told[key][:0] for key in KEYS}


def binary_digits(values: Array, count: int = DIGITS) -> Array:
    """Return the numbers with this number of binary digits each."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, count)), exponent - count))


def summed_rows(samples: int, left_out: LeftOut) -> Array:
    """Return the numbers of those rows over which sums may leave the device.

    Every sum over its training data that a device sends (label counts, a loss) is over exactly these rows. So two sums
    never differ by fewer than `FEWEST` rows (device_agent/durable/counted_rows.py).
    """
    rows = np.arange(samples)
    return rows[:0] if left_out is None else np.delete(rows, np.array(left_out, np.int64)) if left_out else rows


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and summed squares around it, of each channel, in double precision."""
    axes = (0, *range(2, x.ndim))
    count = x.size // max(1, x.shape[1])
    blocks = range(0, len(x), BLOCK)
    total = np.sum([x[i : i + BLOCK].sum(axis=axes, dtype=np.float64) for i in blocks], axis=0)
    mean = total / max(1, count)
    around = mean.reshape(1, -1, *[1] * (x.ndim - 2))
    return mean, np.sum([((x[i : i + BLOCK] - around) ** 2).sum(axis=axes) for i in blocks], axis=0)


def check(told: Mapping[str, Array], channels: int, classes: int) -> None:
    """Refuse what no device can have counted; a possible lie cannot be told from the truth."""
    kinds = {"samples": ("<i8", (1,)), "mean": ("<f8", (channels,)), "squares": ("<f8", (channels,))}
    kinds["classes"] = "<i8", (classes,)
    if {name: (array.dtype.str, array.shape) for name, array in told.items()} != kinds:
        shown = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in sorted(told.items()))
        raise WireError(
            "update.description",
            f"expected samples, mean and squares of {channels} features, {classes} classes; got {shown}",
        )
    n, counts = int(told["samples"][0]), told["classes"]
    if not 0 <= n <= MOST or 0 < n < FEWEST or (counts < 0).any() or (counts > MOST).any():
        raise WireError("update.description", f"{n} samples, or a class with a number of them that cannot be")
    if classes and int(counts.sum()) != n:
        raise WireError("update.description", f"{n} samples, but {int(counts.sum())} in all classes together")
    limits = (("mean", -LARGEST, LARGEST), ("squares", 0.0, LARGEST * LARGEST))
    for name, least, most in limits:
        if not ((told[name] >= least) & (told[name] <= most)).all():  # NaN is neither
            raise WireError("update.description", f"'{name}' has numbers that are not finite, or cannot be")


def merged(told: Mapping[str, Mapping[str, Array]], values: int, *, cap: float = inf, majority: bool = False) -> State:
    """Merge what all devices describe; a sample has `values` numbers in each channel.

    No device counts for more than `cap` times the median device; `bounded` is how many would have. With `majority` no
    single device matters: the mean and the deviation are the medians of theirs.
    """
    known = [told[device] for device in sorted(told) if told[device]["samples"][0]]
    if not known:
        return {key: np.zeros(1, np.int64) for key in ("devices", "samples", "bounded")}
    samples = [int(one["samples"][0]) for one in known]
    most = cap * float(np.median(samples))
    weights = [min(float(n), most) for n in samples]
    means, squares = (np.stack([one[key] for one in known]) for key in ("mean", "squares"))
    spreads = squares / (np.array(samples, np.float64)[:, None] * values)
    mean = np.median(means, axis=0) if majority else _mean(means, weights)
    around = spreads + (means - mean) ** 2
    variance = np.median(around, axis=0) if majority else _mean(around, weights)
    deviation = np.sqrt(variance)
    varies = deviation > CONSTANT * np.abs(mean)
    counts = [one["classes"] * (weight / n) for one, weight, n in zip(known, weights, samples, strict=True)]
    return {
        "devices": np.array([len(known)], np.int64),
        "samples": np.array([sum(samples)], np.int64),
        "bounded": np.array([sum(weight < n for weight, n in zip(weights, samples, strict=True))], np.int64),
        "mean": mean.astype(np.float32),
        "scale": np.where(varies, 1 / np.where(varies, deviation, 1.0), 1.0).astype(np.float32),
        "classes": _sums(np.stack(counts)),
    }


def balanced(counts: Array) -> Array:
    """What each class weighs, so that all of them together weigh the same; one without samples weighs one."""
    there = counts > 0
    fair = float(counts.sum()) / max(1, int(there.sum()))
    weights = np.where(there, fair / np.where(there, counts, 1.0), 1.0)
    return np.clip(weights, LEAST_WEIGHT, MOST_WEIGHT).astype(np.float32)


def _mean(rows: Array, weights: list[float]) -> Array:
    total = fsum(weights)
    return _sums(rows * (np.array(weights) / total)[:, None])


def _sums(rows: Array) -> Array:
    """The sum of each column, rounded once: no order of its terms changes it."""
    return np.array([fsum(column) for column in rows.T.tolist()], np.float64)
