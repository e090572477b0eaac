"""The motion-sensor sets: samples are (channels, time), float32, each channel standardised by the training part."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.source import Source, arrays


def uci_har(folder: Path, limit: DataLimit) -> Source:
    """Smartphone activity, windows (9, 128), six classes; the official split, by person."""
    d = arrays(folder / "uci_har.npz", limit)
    limit.take(len(d["start"]) * 128 * (8 + d["stream"][:1].nbytes))
    x = d["stream"][d["start"][:, None] + np.arange(128)]
    return by_person(x, d["y"], d["subject"], d["split"] == 1, classes=6, name="uci_har")


def watch_rehab(folder: Path, limit: DataLimit, length: int = 100, step: int = 50) -> Source:
    """Smartwatch shoulder exercises, windows (6, 100) with half overlap, seven classes.

    The last two people are the test: windows of one person are too alike to stand on both sides.
    """
    d = arrays(folder / "watch.npz", limit)
    ends = np.clip(d["offset"], 0, len(d["x"]))
    limit.take(sum(max(0, b - a) // step + 1 for a, b in pairwise(ends.tolist())) * length * (8 + d["x"][:1].nbytes))
    starts = [np.arange(a, b - length + 1, step) for a, b in pairwise(ends)]
    recording = np.repeat(np.arange(len(starts)), [len(s) for s in starts])
    x = d["x"][np.concatenate(starts)[:, None] + np.arange(length)].astype(np.float32)
    subject = d["subject"][recording]
    last_two = np.isin(subject, np.unique(d["subject"])[-2:])
    return by_person(x, d["y"][recording], subject, last_two, classes=7, name="watch_rehab")


def by_person(x: Array, y: Array, person: Array, test: Array, *, classes: int, name: str) -> Source:
    """Windows (n, time, channels) and their people as a source; `test` marks the windows to test on."""
    learn = x[~test]
    mean, spread = learn.mean(axis=(0, 1), dtype=np.float64), learn.std(axis=(0, 1), dtype=np.float64)
    spread[spread == 0] = 1

    def ready(rows: Array) -> Dataset:
        scaled = ((x[rows] - mean) / spread).astype(np.float32)
        return Dataset(np.ascontiguousarray(scaled.swapaxes(1, 2)), y[rows].astype(np.int64), classes)

    return Source(ready(~test), ready(test), person[~test].astype(np.int64), name)
