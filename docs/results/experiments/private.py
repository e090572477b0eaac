"""Upcycled-FL and FedProx, both private: `python private.py MECHANISM SET...` prints what `make private` here left.

Epsilon is told three times: the upper bound for the device that spent most, the same by the paper's formula, which is
no bound, and the mean of that formula over all devices, which is what the paper prints. Loss and accuracy are those on
the test samples after the last round.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import sources

from edgefl.learn.privacy import objective_epsilon, upcycled_epsilon

UPDATES = {"fedprox": 80, "upcycled": 40}
SIGMA = {"fedprox": 1.0, "upcycled": 0.8}
ALPHA = {"fedprox": 10.0, "upcycled": 20.0}
CLIP, DELTA, MU = 10.0, 1e-3, 0.1
FILES = {"iid": "iid", "00": "0_0", "55": "0.5_0.5", "11": "1_1"}


def as_published(mechanism: str, label: str, samples: int) -> float:
    """What a device with so many samples spends by the paper's formula."""
    if mechanism == "output":
        return upcycled_epsilon(UPDATES[label], CLIP, SIGMA[label], samples, DELTA)
    return objective_epsilon(UPDATES[label], ALPHA[label], 1.0, 0.25, samples, MU)


def each(values: list[float], digits: int) -> str:
    """Every seed, then the median."""
    return f"{' / '.join(f'{value:.{digits}f}' for value in values)} : **{median(values):.{digits}f}**"


def rows(mechanism: str, name: str) -> Iterator[str]:
    """A line for each method on one set."""
    results = json.loads(Path("runs", f"private-{mechanism}-{name}", "results.json").read_text(encoding="utf-8"))
    runs: dict[str, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        runs.setdefault(run["label"], []).append(run["done"])
    sizes = np.bincount(sources.upcycled_synthetic(FILES[name]).groups).tolist()
    for label, dones in runs.items():
        spent = dones[0]["privacy"]
        told = ["none"] * 3
        if spent:
            mean = fmean(as_published(mechanism, label, samples) for samples in sizes)
            told = [f"{spent['epsilon']:,.0f}", f"{spent['as_published']:.1f}", f"{mean:.2f}"]
        cells = [
            *told,
            each([done["loss"] for done in dones], 3),
            each([100 * done["accuracy"] for done in dones], 1),
            each([done["cpu_seconds"] for done in dones], 0),
        ]
        yield f"| {name} | {label} | {' | '.join(cells)} |\n"


def main(mechanism: str, *names: str) -> None:
    """Print the table."""
    say = sys.stdout.write
    say("| set | | epsilon | as published | mean as published | test loss | accuracy, % | CPU s |\n")
    say("|---|---|---|---|---|---|---|---|\n")
    for name in names:
        for row in rows(mechanism, name):
            say(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
