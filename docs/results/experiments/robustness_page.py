"""The tables of docs/results/robustness.md: what was played, between two marks of the page; the words are kept."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

PAGE = Path(__file__).parents[1] / "robustness.md"
TABLES, CHOICE = (
    "tables: made by `make -f docs/results/experiments/Makefile robustness`",
    "choice: made by `make -f docs/results/experiments/Makefile robustness-choice`",
)  # the parts of the page


@dataclass(frozen=True, slots=True)
class Play:
    """One run: who defends how, and who attacks; `attack` is empty where nobody does."""

    data: str
    seed: int
    defence: str
    attack: str = ""
    share: float = 0.0
    judged: str = "test"  # or "validation": a fifth of the training data, and no test data at all


@dataclass(frozen=True, slots=True)
class Result:
    """What came out: the mean accuracy of the last rounds, and how often the back door opened."""

    accuracy: float
    back_door: float
    diverged: bool = False


Results = Mapping[Play, Result]


def write(part: str, text: str) -> None:
    """Put the text into its part of the page."""
    begin, end = f"<!-- {part} -->\n", "<!-- end -->"
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, _, tail = rest.partition(end)
    PAGE.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def tables(results: Results) -> str:
    """Three tables for each data set."""
    parts = []
    for data in names(play.data for play in results):
        some = {play: result for play, result in results.items() if play.data == data}
        seeds = ", ".join(str(seed) for seed in sorted({play.seed for play in some}))
        parts += [
            f"### {data}\n",
            f"Means over the seeds {seeds}; a star: a run ended, its model no longer finite, and counts as chance.\n",
            "Accuracy in per cent, with 10 / 20 / 30 % of attackers:\n",
            accuracies(some),
            "How often the back door opens, in per cent of the samples that bear the trigger:\n",
            back_doors(some),
            "The most that 20 % of attackers cost, in points of the accuracy without attackers:\n",
            losses(some),
        ]
    return "\n".join(parts)


def accuracies(results: Results) -> str:
    """One line for each defence."""
    attacks = [attack for attack in names(play.attack for play in results) if attack]
    rows = [
        [f"`{defence}`", clean(results, defence), *(series(results, defence, attack) for attack in attacks)]
        for defence in names(play.defence for play in results)
    ]
    return table(["defence", "no attackers", *attacks], rows)


def back_doors(results: Results) -> str:
    """The same for the success of the back door; without attackers it is how often the trigger misleads by chance."""
    rows = []
    for defence in names(play.defence for play in results):
        doors = [[r.back_door for r in runs(results, defence, "back door", share)] for share in shares(results)]
        nobody = fmean(r.back_door for r in runs(results, defence))
        rows.append([f"`{defence}`", f"{100 * nobody:.0f}", " / ".join(f"{100 * fmean(door):.0f}" for door in doors)])
    return table(["defence", "no attackers", "back door"], rows)


def losses(results: Results) -> str:
    """Which attack costs most, against the same defence without attackers and against no defence without attackers."""
    attacks = [attack for attack in names(play.attack for play in results) if attack]
    nothing = mean(runs(results, "none"))
    rows = []
    for defence in names(play.defence for play in results):
        after = {attack: mean(runs(results, defence, attack, 0.2)) for attack in attacks}
        worst = min(after, key=lambda attack: after[attack])
        lost = [mean(runs(results, defence)) - after[worst], nothing - after[worst], worst_run(results, defence)]
        rows.append([f"`{defence}`", worst, *(f"{100 * points:.1f}" for points in lost)])
    return table(
        ["defence", "worst attack", "against itself", "against `none`", "worst single run, against itself"], rows
    )


def worst_run(results: Results, defence: str) -> float:
    """What 20 % of attackers cost at most in one run, against the same defence and seed without attackers."""
    alone = {play.seed: result for play, result in results.items() if (play.defence, play.attack) == (defence, "")}
    attacked = {play: result for play, result in results.items() if (play.defence, play.share) == (defence, 0.2)}
    return max(alone[play.seed].accuracy - result.accuracy for play, result in attacked.items())


def clean(results: Results, defence: str) -> str:
    """Without attackers: the mean over the seeds, and their standard deviation."""
    seen = [100 * result.accuracy for result in runs(results, defence)]
    return f"{fmean(seen):.1f} ± {stdev(seen):.1f}" if len(seen) > 1 else f"{seen[0]:.1f}"


def series(results: Results, defence: str, attack: str) -> str:
    """The mean over the seeds for each share of attackers; a star where a run ended because nothing was finite."""
    cells = []
    for share in shares(results):
        some = runs(results, defence, attack, share)
        cells.append(f"{100 * mean(some):.1f}{'*' if any(one.diverged for one in some) else ''}")
    return " / ".join(cells)


def runs(results: Results, defence: str, attack: str = "", share: float = 0.0) -> list[Result]:
    """The runs of all seeds."""
    return [r for p, r in results.items() if (p.defence, p.attack, p.share) == (defence, attack, share)]


def mean(results: Sequence[Result]) -> float:
    """Of the accuracies."""
    return fmean(result.accuracy for result in results)


def shares(results: Results) -> list[float]:
    """The shares of attackers that were played."""
    return sorted({play.share for play in results if play.share})


def names(words: Iterable[str]) -> list[str]:
    """Each once, in the order of its first appearance."""
    return list(dict.fromkeys(words))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
