"""Methods with the same divisions and seeds: `python pairs.py FOLDER...` reads what `edgefl compare` left in each.

Prints the best accuracy of every fifth round, and of all rounds, and in points by how much each method is ahead of the
first one in the same pair; then the medians of these gains, and how many are above and below zero.
"""

import json
import sys
from pathlib import Path
from statistics import median

EVERY = {"every 5th round": slice(4, None, 5), "all rounds": slice(None)}


def curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """For each seed the accuracy after every round, method by method."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    pairs: dict[str, dict[str, list[float]]] = {}
    for run in results["runs"]:
        pair = pairs.setdefault(f"{folder.name}, seed {run['seed']}", {})
        pair[run["label"]] = [report["accuracy"] for report in run["rounds"]]
    return pairs


def main(folders: list[str]) -> None:
    """Print a table for each way of looking, with the methods that all pairs have."""
    pairs = {name: pair for folder in folders for name, pair in curves(Path(folder)).items()}
    labels = [label for label in next(iter(pairs.values())) if all(label in pair for pair in pairs.values())]
    say = sys.stdout.write
    for title, rounds in EVERY.items():
        say(f"\n| best of {title} | {' | '.join(labels)} |\n|---{'|---' * len(labels)}|\n")
        gains: dict[str, list[float]] = {label: [] for label in labels[1:]}
        for name, curve in pairs.items():
            best = {label: max(curve[label][rounds]) for label in labels}
            cells = [f"{best[labels[0]]:.3f}"]
            for label, gained in gains.items():
                gained.append(100 * (best[label] - best[labels[0]]))
                cells.append(f"{best[label]:.3f} ({gained[-1]:+.1f})")
            say(f"| {name} | {' | '.join(cells)} |\n")
        middle = [
            f"{median(gained):+.1f}; {sum(g > 0 for g in gained)} : {sum(g < 0 for g in gained)}"
            for gained in gains.values()
        ]
        say(f"| median gain; above : below zero | | {' | '.join(middle)} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
