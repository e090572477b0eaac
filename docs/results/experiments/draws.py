"""One recipe, many draws: `python draws.py FOLDER...` reads what `edgefl compare` left for each and prints two tables.

Accuracies are those of the last round, in per cent. The first table has one line for each method, and one for a
logistic regression fitted to all training data of a draw at once; the second the paired gains of Upcycled-FL.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from math import comb
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from edgefl.learn.data.catalog import load

PAIRS = (("upcycled.1", "fedprox.1"), ("upcycled.5", "fedprox.5"))


def accuracies(folder: Path) -> tuple[str, dict[str, float]]:
    """The data set that was played, and the last accuracy of each method."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    word = next(word for word in shlex.split(results["command"]) if word.startswith("task.data="))
    return word.removeprefix("task.data="), {line["label"]: 100 * line["last"] for line in results["scores"]}


def pooled(name: str) -> float:
    """What one logistic regression reaches that sees the data of all devices."""
    source = load(name)
    fitted = LogisticRegression(C=1e6, max_iter=2000).fit(source.train.x, source.train.y)
    return 100 * float(fitted.score(source.test.x, source.test.y))


def spread(values: Sequence[float]) -> str:
    """Least, quartiles and largest, as cells of a table."""
    return " | ".join(f"{value:.1f}" for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))


def sign_test(gains: Sequence[float]) -> tuple[int, int, float]:
    """How many are above zero and how many below; how likely so uneven a count is if both are alike (two-sided)."""
    above, below = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    n, few = above + below, min(above, below)
    return above, below, min(1.0, 2 * sum(comb(n, i) for i in range(few + 1)) / 2**n)


def main(folders: Sequence[str]) -> None:
    """Print both tables."""
    played = [accuracies(Path(folder)) for folder in folders]
    columns = {label: [accuracy_of[label] for _, accuracy_of in played] for label in played[0][1]}
    columns["one regression on all data"] = [pooled(name) for name, _ in played]
    say = sys.stdout.write
    say(f"| {len(played)} draws | least | quartile | median | quartile | largest |\n|---|---|---|---|---|---|\n")
    for label, values in columns.items():
        say(f"| {label} | {spread(values)} |\n")
    say("\n| gain | least | quartile | median | quartile | largest | above : below zero | sign test |\n")
    say("|---|---|---|---|---|---|---|---|\n")
    for ours, theirs in PAIRS:
        gains = [a - b for a, b in zip(columns[ours], columns[theirs], strict=True)]
        above, below, p = sign_test(gains)
        say(f"| {ours} - {theirs} | {spread(gains)} | {above} : {below} | p = {p:.2g} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
