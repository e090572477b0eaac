"""A sweep: of each algorithm's settings the best one is chosen on validation data, and only that one is tested.

    families ──▶ every setting, tuning seeds, judged by a part of the training data ──▶ choose ──▶ the chosen ones,
                 all seeds, trained on all training data, judged by the test data ──▶ Comparison

The runs to choose by hold no test data at all: their split is made of the training part (learn/data/validation.py).
`choose` takes nothing but what came of such runs, so no setting can be chosen by a test score.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

from edgefl.base.errors import RunError
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison import report
from edgefl.lab.comparison.comparison import LEVELS, ComparisonResult, Watching, check, compare, tell_of_guards
from edgefl.lab.comparison.edges import Edge, caution, edges
from edgefl.lab.comparison.grid import Family, Setting
from edgefl.lab.comparison.outcomes import Outcome, Play, PlayedRun
from edgefl.lab.comparison.running import ResultStore
from edgefl.lab.comparison.significance import final_score
from edgefl.lab.comparison.variants import Variant
from edgefl.learn.data.validation import Place
from edgefl.learn.evaluation.figures import metric_of

log = logging.getLogger(__name__)

SHARE = 0.2  # of each device's training data, to choose by
VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting, and what the validation data say about it: by seed, and in the mean. Failed seeds are not there."""

    setting: Setting
    scores: dict[int, float]
    rounds: int  # it was trained for, in the middle of its seeds: fewer than asked where patience ended it
    measure: str  # what runs are judged by
    failed: tuple[str, ...] = ()  # why, of those that failed
    diverged: tuple[int, ...] = ()  # how many rounds those came to that diverged

    @property
    def mean(self) -> float:
        """Of what runs are judged by; of a setting that failed or diverged with any seed, as bad as can be."""
        if self.failed or self.diverged or not self.scores:
            return -inf if metric_of(self.measure).higher else inf
        return fmean(self.scores.values())

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        mean = self.mean if isfinite(self.mean) else None
        scores = {str(seed): score for seed, score in self.scores.items()}
        ends = {"failed": list(self.failed), "diverged": list(self.diverged)}
        return {"values": dict(self.setting.values), "mean": mean, "scores": scores, **ends}


@dataclass(frozen=True, slots=True)
class Choice:
    """All trials of one algorithm, and the one that was chosen."""

    label: str
    trials: tuple[Trial, ...]
    chosen: Trial

    @property
    def at_edge(self) -> tuple[Edge, ...]:
        """The chosen values that no tried one lies beyond."""
        return edges(self.chosen.setting.values, [trial.setting.values for trial in self.trials])

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        trials = [trial.as_json() for trial in self.trials]
        at_edge = {edge.key: edge.side for edge in self.at_edge}
        return {"label": self.label, "chosen": dict(self.chosen.setting.values), "at_edge": at_edge, "trials": trials}


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What was chosen, by what, and how good that is on data that played no part in the choice."""

    choices: tuple[Choice, ...]
    tested: ComparisonResult

    def text(self) -> str:
        """The tables, for a terminal or a Markdown file."""
        return "\n\n".join([*self._choices().text(), self.tested.text()])

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {"choices": self._choices().plain, **self.tested.as_json()}

    def write(self, folder: Path) -> Path:
        """Leave tables, pictures and everything else in the folder; gives back the page that shows them."""
        tested, choices = self.tested, self._choices()
        runs = tested.variants, tested.outcomes, tested.levels
        return report.write(folder, *runs, standings=tested.standings(), choices=choices)

    def _choices(self) -> report.Choices:
        head = ["algorithm", "setting", "validation", "seeds", "chosen"]
        rows = [
            [choice.label, trial.setting.label, *_cells(trial), _mark(choice) if trial is choice.chosen else ""]
            for choice in self.choices
            for trial in choice.trials
        ]
        return report.Choices(head, rows, [choice.as_json() for choice in self.choices], cautions(self.choices))


def sweep(
    families: Sequence[Family],
    *,
    seeds: int = 1,
    tuning_seeds: int = 1,
    validation: float = SHARE,
    validation_from: Place = "devices",
    workers: int = 1,
    root: Path | None = None,
    memory: ResultStore | None = None,
    watching: Watching | None = None,
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    play: Play | None = None,
    attempt: Play | None = None,
) -> SweepResult:
    """Choose a setting of each family with `tuning_seeds` seeds, then play what was chosen with all `seeds`."""
    check([Variant(family.label, family.settings[0].run) for family in families], baseline)
    around: dict[str, Any] = {"workers": workers, "root": root, "memory": memory, "watching": watching}
    around |= {"play": play, "attempt": attempt, "guards_told": False}
    tuning = [
        Variant(_name(family, i), to_choose(setting.run, validation, validation_from))
        for family in families
        for i, setting in enumerate(family.settings)
    ]
    judged = compare(tuning, seeds=tuning_seeds, **around)
    choices = tuple(_chosen(family, judged.outcomes) for family in families)
    chosen = [Variant(choice.label, to_test(choice.chosen)) for choice in choices]
    tested = compare(chosen, seeds=seeds, levels=levels, baseline=baseline, **around)
    tell_of_guards(judged, tested)
    for line in cautions(choices):
        log.warning("%s", line)
    return SweepResult(choices, tested)


def to_choose(run: RunFile, share: float, place: Place) -> RunFile:
    """The run, judged by a part of its training data."""
    return _with(run, "evaluation", validation=share, validation_from=place)


def to_test(trial: Trial) -> RunFile:
    """The run with the chosen setting, on all its training data; where patience ended the trial, for as long as that.

    Patience itself would look at the test data.
    """
    run = trial.setting.run
    patient = run.evaluation.patience is not None
    run = _with(run, "evaluation", validation=None, patience=None)
    return _with(run, "run", rounds=trial.rounds) if patient else run


def choose(trials: Sequence[Trial]) -> Trial:
    """The best trial; of equally good ones the first. Where all diverged, the one that did so last."""
    pick = max if metric_of(trials[0].measure).higher else min
    best = pick(trials, key=lambda trial: trial.mean)
    if isfinite(best.mean):
        return best
    if diverged := [trial for trial in trials if trial.diverged and not trial.failed]:
        return max(diverged, key=lambda trial: min(trial.diverged))
    raise RunError(f"no setting came to its end; the first one: {trials[0].failed[0]}")


def _chosen(family: Family, outcomes: Sequence[Outcome]) -> Choice:
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.label, []).append(outcome)
    runs = [by_name[_name(family, i)] for i in range(len(family.settings))]
    measure = next((run.measure for each in runs for run in each if isinstance(run, PlayedRun)), "accuracy")
    trials = tuple(_trial(setting, each, measure) for setting, each in zip(family.settings, runs, strict=True))
    try:
        return Choice(family.label, trials, choose(trials))
    except RunError as error:
        raise RunError(f"{family.label}: {error}") from None


def _trial(setting: Setting, outcomes: Sequence[Outcome], measure: str) -> Trial:
    """What came of the runs of a setting, if they were judged by validation data."""
    played = [outcome for outcome in outcomes if isinstance(outcome, PlayedRun)]
    for run in played:
        if run.split != VALIDATION:
            raise ValueError(
                f"{run.label}, seed {run.seed}: was judged by {run.split} data; nothing is chosen by these"
            )
    failed = tuple(outcome.why for outcome in outcomes if not isinstance(outcome, PlayedRun))
    finite = [run for run in played if not run.diverged]
    rounds = round(median(run.done.rounds for run in finite)) if finite else setting.run.run.rounds
    diverged = tuple(run.done.rounds for run in played if run.diverged)
    return Trial(setting, {run.seed: final_score(run) for run in finite}, max(1, rounds), measure, failed, diverged)


def _name(family: Family, number: int) -> str:
    """What a trial is called while it is played."""
    only = len(family.settings) == 1
    return family.label if only else f"{family.label} {family.settings[number].label}"


def _with(run: RunFile, section: str, **changes: Any) -> RunFile:
    return run.model_copy(update={section: getattr(run, section).model_copy(update=changes)})


def cautions(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return a line for each chosen value that is at the edge of its grid."""
    return tuple(caution(choice.label, edge) for choice in choices for edge in choice.at_edge)


def _mark(choice: Choice) -> str:
    """What the table has beside the chosen setting."""
    return f"* {', '.join(f'{edge.side} {edge.key}' for edge in choice.at_edge)}".rstrip()


def _cells(trial: Trial) -> tuple[str, str]:
    if not isfinite(trial.mean):
        return "failed" if trial.failed else "diverged", str(len(trial.scores))
    return format(trial.mean, ".4f" if metric_of(trial.measure).share else ".4g"), str(len(trial.scores))
