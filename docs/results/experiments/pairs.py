"""Methods with the same divisions and seeds: `python pairs.py FOLDER...` reads what `edgefl compare` left in each.

Prints the best accuracy of every fifth round, and of all rounds, and in points by how much each method is ahead of the
first one in the same pair; then, for every method against every other, the median of these gains, their quartiles, the
least and the largest, and how many are above and below zero.
"""

import json
import sys
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

EVERY = {"every 5th round": slice(4, None, 5), "all rounds": slice(None)}


def curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """For each seed the accuracy after every round, method by method."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    pairs: dict[str, dict[str, list[float]]] = {}
    for run in results["runs"]:
        pair = pairs.setdefault(f"{folder.name}, seed {run['seed']}", {})
        pair[run["label"]] = [report["accuracy"] for report in run["rounds"]]
    return pairs


def gains(best: list[dict[str, float]], ours: str, theirs: str) -> list[float]:
    """In points, by how much one method is ahead of another in each pair."""
    return [round(100 * (pair[ours] - pair[theirs]), 6) for pair in best]


def spread(gained: list[float]) -> str:
    """Median, quartiles, least and largest, and how many are above and below zero, as cells of a table."""
    low, high = np.quantile(gained, [0.25, 0.75])
    above, below = sum(gain > 0 for gain in gained), sum(gain < 0 for gain in gained)
    ends = f"{min(gained):+.1f} to {max(gained):+.1f}"
    return f"**{median(gained):+.1f}** | {low:+.1f} to {high:+.1f} | {ends} | {above} : {below}"


def main(folders: list[str]) -> None:
    """Print the tables for each way of looking, with the methods that all pairs have."""
    pairs = {name: pair for folder in folders for name, pair in curves(Path(folder)).items()}
    labels = [label for label in next(iter(pairs.values())) if all(label in pair for pair in pairs.values())]
    say = sys.stdout.write
    for title, rounds in EVERY.items():
        best = [{label: max(pair[label][rounds]) for label in labels} for pair in pairs.values()]
        say(f"\n| best of {title} | {' | '.join(labels)} |\n|---{'|---' * len(labels)}|\n")
        for name, pair in zip(pairs, best, strict=True):
            ahead = [f"{pair[label]:.3f} ({gains([pair], label, labels[0])[0]:+.1f})" for label in labels[1:]]
            say(f"| {name} | {' | '.join([f'{pair[labels[0]]:.3f}', *ahead])} |\n")
        say(f"\n| best of {title} | median | quartiles | least to largest | above : below zero |\n")
        say("|---|---|---|---|---|\n")
        for theirs, ours in combinations(labels, 2):
            say(f"| {ours} - {theirs} | {spread(gains(best, ours, theirs))} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
