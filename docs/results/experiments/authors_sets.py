"""Upcycled-FL on the sets it was published with: `python authors_sets.py SHARE` prints ours beside the paper's values.

Reads what `upcycled` of the Makefile here left in runs/upcycled-SET-SHARE, SHARE being that of the stragglers.
Accuracies are those on the test samples after the last round, in per cent. The paper's table has 90 % stragglers; of
30 % it has curves alone.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

SETS = {"iid": "iid", "00": "(0,0)", "55": "(.5,.5)", "11": "(1,1)"}
MUS = {".1": "0.1", ".3": "0.3", ".5": "0.5", "1": "1"}
FEDAVG = {"iid": 97.51, "00": 76.27, "55": 78.97, "11": 71.12}  # published, test, 90 % stragglers; so are the next
FEDPROX = {
    "iid": (96.34, 94.88, 93.70, 91.80),
    "00": (79.50, 79.35, 79.35, 78.85),
    "55": (79.58, 80.56, 79.46, 80.20),
    "11": (78.83, 75.91, 76.67, 76.58),
}
UPCYCLED = {
    "iid": (97.51, 96.05, 95.02, 93.70),
    "00": (82.44, 81.58, 81.29, 80.57),
    "55": (81.54, 83.74, 82.64, 82.64),
    "11": (78.64, 81.47, 83.07, 82.69),
}


def last(folder: Path) -> dict[str, list[float]]:
    """The last accuracy of each method, seed by seed."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    columns: dict[str, list[float]] = {}
    for line in results["scores"]:
        if line["seed"] != "median":
            columns.setdefault(line["label"], []).append(100 * line["last"])
    return columns


def cell(values: list[float]) -> str:
    """Every seed, then the median."""
    return f"{' / '.join(f'{value:.1f}' for value in values)} : **{median(values):.1f}**"


def beside(published: float | None) -> str:
    """What the paper has, if it has it."""
    return "" if published is None else f" ({published:.1f})"


def lines(name: str, share: str) -> Iterator[str]:
    """The lines of one set: FedAvg, then both methods and the gain for every mu."""
    ours = last(Path("runs", f"upcycled-{name}-{share}"))
    known = share == "0.9"
    yield f"| {SETS[name]} | FedAvg | {cell(ours['fedavg'])}{beside(FEDAVG[name] if known else None)} | | |"
    for i, (label, mu) in enumerate(MUS.items()):
        if f"fedprox{label}" not in ours:  # not every mu was played
            continue
        prox, up = ours[f"fedprox{label}"], ours[f"upcycled{label}"]
        gain = " / ".join(f"{b - a:+.1f}" for a, b in zip(prox, up, strict=True))
        theirs = (FEDPROX[name][i], UPCYCLED[name][i]) if known else (None, None)
        step = f" ({theirs[1] - theirs[0]:+.1f})" if theirs[0] is not None and theirs[1] is not None else ""
        yield (
            f"| {SETS[name]} | mu = {mu} | {cell(prox)}{beside(theirs[0])} | {cell(up)}{beside(theirs[1])}"
            f" | {gain}{step} |"
        )


def main(share: str) -> None:
    """Print the table."""
    say = sys.stdout.write
    say("| set | | FedProx | Upcycled-FL | Upcycled-FL - FedProx |\n|---|---|---|---|---|\n")
    for name in SETS:
        if Path("runs", f"upcycled-{name}-{share}", "results.json").exists():
            for line in lines(name, share):
                say(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
