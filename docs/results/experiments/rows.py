"""The rows of algorithms.md: `python rows.py FOLDER...` reads what `edgefl compare` left in each and prints a table.

Of every figure the seeds in their order, then the median. Accuracies are those of the rounds that asked devices.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

FIFTH = slice(4, None, 5)  # the specification looks at GradMA after every fifth round


def share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def cell(values: Sequence[float | None], form: str = "") -> str:
    """Every seed, then the median; a level that was never reached is a dash, and further away than any other."""
    say = (lambda value: f"{value:{form}}") if form else share
    middle = median(float("inf") if value is None else value for value in values)
    shown = ["-" if value is None else say(value) for value in values]
    return f"{' / '.join(shown)} : **{'-' if middle == float('inf') else say(middle)}**"


def rows(results: dict[str, Any]) -> list[str]:
    """Head and rows of one comparison."""
    lines: dict[str, list[dict[str, Any]]] = {}
    curves: dict[str, list[list[float]]] = {}
    for line in results["scores"]:
        if line["seed"] != "median":
            lines.setdefault(line["label"], []).append(line)
    for run in results["runs"]:
        curves.setdefault(run["label"], []).append([report["accuracy"] for report in run["rounds"]])
    levels = [f"rounds to {level:.0%}" for level in results["levels"]]
    head = ["", "best accuracy", "best of every 5th round", "last round", "mean of the last 5", *levels]
    head += ["mean round forgetting", "CPU s", "unsolved"]
    table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label, each in lines.items():
        shares = [
            [line["best"] for line in each],
            [max(curve[FIFTH], default=None) for curve in curves[label]],
            [line["last"] for line in each],
            [line["last_five"] for line in each],
        ]
        firsts = [[line["rounds_to"][i] for line in each] for i in range(len(levels))]
        cells = [*map(cell, shares), *(cell(values, ".0f") for values in firsts)]
        cells += [cell([line["forgetting"] for line in each]), cell([line["cpu_seconds"] for line in each], ".0f")]
        cells += [" / ".join(str(line["unsolved"]) for line in each)]
        table.append(f"| {label} | {' | '.join(cells)} |")
    return table


def main(folders: Sequence[str]) -> None:
    """A table for each folder."""
    for folder in folders:
        results = json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))
        sys.stdout.write("\n".join([f"\n{folder}: {results['command']}\n", *rows(results), ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
