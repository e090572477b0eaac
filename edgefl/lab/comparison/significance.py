"""Who is better, as far as the seeds can tell: each variant's mean and interval, and its paired test against one.

Judged by the mean of the last five scores of a run: its best one would be chosen by the very data that judge it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan

from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.statistics import Paired, Spread, holm, paired, spread
from edgefl.learn.evaluation.figures import metric_of

LAST = 5


@dataclass(frozen=True, slots=True)
class VariantResult:
    """One variant over all its seeds."""

    label: str
    score: Spread
    against: Paired | None  # the baseline; None for the baseline itself
    measure: str = "accuracy"  # what runs are judged by
    diverged: int = 0  # seeds that did, and are in none of these numbers


def final_score(run: PlayedRun) -> float:
    """The mean of the last five judged rounds, of what the run is judged by."""
    last = run.judged[-LAST:]
    return sum(last) / len(last)


def standings(runs: Sequence[PlayedRun], baseline: str | None = None) -> list[VariantResult]:
    """Every variant, in the order given, against the baseline: the first one unless said."""
    by_label = {
        label: {run.seed: final_score(run) for run in runs if run.label == label and not run.diverged}
        for label in _labels(runs)
    }
    diverged = Counter(run.label for run in runs if run.diverged)
    baseline = baseline if baseline in by_label else next(iter(by_label), None)
    tests = {
        label: paired(values, by_label[baseline])
        for label, values in by_label.items()
        if label != baseline and baseline is not None
    }
    corrected = dict(zip(tests, holm([one.p if one else float("nan") for one in tests.values()]), strict=True))
    against = {label: replace(one, corrected=corrected[label]) for label, one in tests.items() if one}
    measure = runs[0].measure if runs else "accuracy"
    return [
        VariantResult(label, spread(list(values.values())), against.get(label), measure, diverged[label])
        for label, values in by_label.items()
    ]


def cells(lines: Sequence[VariantResult]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table, as text."""
    baseline = next((line.label for line in lines if line.against is None and line.score.seeds), "")
    astray = any(line.diverged for line in lines)
    head = ["algorithm", "seeds", "mean", "deviation", "95% interval"]
    compared = any(line.against for line in lines)
    head += [f"less {baseline}", "95% interval", "p", "p (Holm)"] if compared else []
    width, rows = len(head), []
    head += ["diverged"] if astray else []
    for line in lines:
        row = [line.label, str(line.score.seeds), *_spread(line.score, line.measure)]
        gap = line.against
        if compared and gap:
            mean, _, interval = _spread(gap.difference, line.measure, sign="+")
            row += [mean, interval, _chance(gap.p), _chance(gap.corrected)]
        row += ["-"] * (width - len(row))
        rows.append([*row, str(line.diverged)] if astray else row)
    return head, rows


def _spread(one: Spread, measure: str, sign: str = "") -> tuple[str, str, str]:
    form = f"{sign}.4f" if metric_of(measure).share else f"{sign}.4g"
    if not one.seeds:
        return "-", "-", "-"
    if isnan(one.deviation):
        return format(one.mean, form), "-", "-"
    return format(one.mean, form), format(one.deviation, form.lstrip("+")), f"{one.low:{form}} to {one.high:{form}}"


def _chance(p: float) -> str:
    return "-" if isnan(p) else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def _labels(runs: Sequence[PlayedRun]) -> list[str]:
    return list(dict.fromkeys(run.label for run in runs))
