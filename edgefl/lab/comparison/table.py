"""The numbers that papers print, for every run, and their medians over the seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, nan
from statistics import mean, median
from typing import Any, TypeAlias

from edgefl.lab.comparison.outcomes import FailedRun, Outcome, PlayedRun
from edgefl.lab.comparison.significance import VariantResult
from edgefl.learn.evaluation import metrics
from edgefl.learn.evaluation.figures import metric_of, title_of

MEDIAN = "median"
KNOWN = ("epsilon", "as_published", "joules")  # that not every run has
UNSOLVED = ("infeasible", "unsolved")  # what stages call a projection that had to be given up


@dataclass(frozen=True, slots=True)
class Score:
    """One line of the table: of one seed, or the median over them."""

    label: str
    seed: int | str
    best: float  # of what runs are judged by, `measure` below; so are the next two
    last: float
    last_five: float
    rounds_to: tuple[float | None, ...]  # one for each level, free rounds not counted; None: never
    megabytes_to: tuple[float | None, ...]  # what was sent until then
    forgetting: float  # mean round forgetting
    megabytes: float  # both ways
    cpu_seconds: float
    virtual_seconds: float | None  # None without a virtual clock; so are the joules below
    free_rounds: float  # that asked no device: counted here and in no other column
    unsolved: float  # projections that were given up, over the whole run
    bounded: float  # answers that `[guards]` scaled down, over the whole run
    measure: str = "accuracy"  # "loss" of a regression, "mean_iou" of a segmentation, ...
    levelled: str | None = "accuracy"  # what levels are counted on; None: there is nothing that grows to 1
    figures: Mapping[str, float | None] = field(default_factory=dict)  # the others that its task has, at the end
    epsilon: float | None = None  # spent by the device that spent most, an upper bound; None: nothing is promised
    as_published: float | None = None  # by the formula of the paper, which is no bound
    joules: float | None = None  # of all devices, as their profiles assume
    seconds_to: tuple[float | None, ...] = ()  # virtual ones, one for each level, where there is a clock
    diverged: str = ""  # the round in which it did ("round 27"), or how many seeds of a median's ("1 of 3"); and why
    why: str = ""


DIVERGED = (
    "diverged: learning left the finite numbers in that round; figures of the run are those of the rounds before, and"
    " medians, means, tests and bands leave it out"
)
BOUNDED = (
    "bounded: answers that [guards] scaled down over the whole run, as on a fleet, descriptions and evaluations among"
    " them; no paper does so, and guards.bounds = false plays the run without"
)

Line: TypeAlias = Score | FailedRun


def score(run: PlayedRun, levels: Sequence[float]) -> Score:
    """The line of one run. Round 0, the untrained model, counts for nothing."""
    curve = [-inf, *run.quality]
    numbers = metrics.summary([nan, *(run.judged or [run.last_report.scores.get(run.measure) or nan])], lower=run.lower)
    levels = levels if run.levelled else ()
    reached = tuple(metrics.rounds_to(curve, level) for level in levels)  # how manieth judged round
    megabytes = [sent / 1e6 for sent in run.summed("bytes_up", "bytes_down")]
    privacy = run.done.privacy or {}
    clock, timed = run.summed("virtual_seconds"), run.done.virtual_seconds is not None
    return Score(
        run.label,
        run.seed,
        numbers.best,
        numbers.last,
        numbers.last_five,
        tuple(None if at is None else run.numbers[at - 1] for at in reached),
        tuple(None if round is None else megabytes[round - 1] for round in reached),
        mean(run.forgetting) if run.forgetting else 0.0,
        megabytes[-1] if megabytes else 0.0,
        run.done.cpu_seconds or 0.0,
        run.done.virtual_seconds,
        run.free,
        unsolved(run),
        run.bounded,
        run.measure,
        run.levelled,
        {name: run.last_report.scores.get(name) for name in other_figures(run)},
        privacy.get("epsilon"),
        privacy.get("as_published"),
        run.done.joules,
        seconds_to=tuple(None if round is None else clock[round - 1] for round in reached) if timed else (),
        diverged=f"round {run.done.rounds + 1}" if run.diverged else "",
        why=run.done.why,
    )


def other_figures(run: PlayedRun) -> tuple[str, ...]:
    """What is told of a model beside what it is judged by."""
    names = next((report.scores for report in (*run.rounds, run.last_report) if report.scores), {})
    left_out = {run.measure, "loss"} if run.has_classes else {run.measure}
    return tuple(name for name in names if name not in left_out)


def unsolved(run: PlayedRun) -> float:
    """How many projections the stages had to give up; they count from the first round on."""
    stages = run.last_report.stages
    return sum(counted.get(word) or 0 for counted in stages.values() for word in UNSOLVED)


def middle(scores: Sequence[Score]) -> Score:
    """The median of each column; a level that is never reached lies beyond every round."""
    first = scores[0]
    levels = range(len(first.rounds_to))
    virtual = [s.virtual_seconds for s in scores if s.virtual_seconds is not None]
    seconds = tuple(_or_never([s.seconds_to[i] for s in scores]) for i in range(len(first.seconds_to)))
    known = {key: _known([getattr(s, key) for s in scores]) for key in KNOWN}
    return Score(
        first.label,
        MEDIAN,
        median(s.best for s in scores),
        median(s.last for s in scores),
        median(s.last_five for s in scores),
        tuple(_or_never([s.rounds_to[i] for s in scores]) for i in levels),
        tuple(_or_never([s.megabytes_to[i] for s in scores]) for i in levels),
        median(s.forgetting for s in scores),
        median(s.megabytes for s in scores),
        median(s.cpu_seconds for s in scores),
        median(virtual) if virtual else None,
        median(s.free_rounds for s in scores),
        median(s.unsolved for s in scores),
        median(s.bounded for s in scores),
        first.measure,
        first.levelled,
        {name: _known([s.figures.get(name) for s in scores]) for name in first.figures},
        epsilon=known["epsilon"],
        as_published=known["as_published"],
        joules=known["joules"],
        seconds_to=seconds,
    )


def scores(runs: Sequence[Outcome], levels: Sequence[float]) -> list[Line]:
    """Every run's line, by variant, and before them the median where several seeds came to their end."""
    lines: list[Line] = []
    for label in dict.fromkeys(run.label for run in runs):
        each: list[Line] = [
            run if isinstance(run, FailedRun) else score(run, levels) for run in runs if run.label == label
        ]
        whole = [line for line in each if isinstance(line, Score)]
        finite = [line for line in whole if not line.diverged]
        if len(whole) > 1 and finite:
            astray = len(whole) - len(finite)
            lines.append(replace(middle(finite), diverged=f"{astray} of {len(whole)}" if astray else ""))
        lines += each
    return lines


def cells(lines: Sequence[Line], levels: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table, as text; what is rare (a clock, free rounds, privacy) only where there is some."""
    whole = [line for line in lines if isinstance(line, Score)]
    shown = {
        "virtual s": any(line.virtual_seconds is not None for line in whole),
        "kJ": any(line.joules for line in whole),
        "free rounds": any(line.free_rounds for line in whole),
        "unsolved": any(line.unsolved for line in whole),
        "bounded": any(line.bounded for line in whole),
        "diverged": any(line.diverged for line in whole),
        "epsilon": any(line.as_published is not None for line in whole),
        "as published": any(line.as_published is not None for line in whole),
    }
    rare = [title for title, some in shown.items() if some]
    measure, levelled = (whole[0].measure, whole[0].levelled) if whole else ("accuracy", "accuracy")
    plain = measure == "accuracy"
    named = "" if plain else f" {title_of(measure)}"
    heights = [_height(level, levelled, named=levelled != measure) for level in levels] if levelled else []
    head = ["algorithm", "seed", f"best{named}", f"last{named}", "last 5"]
    head += [title_of(name) for name in (whole[0].figures if whole else ("balanced_accuracy",))]
    head += [f"to {height}" for height in heights] + [f"MB to {height}" for height in heights]
    head += [f"s to {height}" for height in heights] if shown["virtual s"] else []
    head += [*(["forgetting"] if plain else []), "MB", "CPU s", *rare]
    return head, [_cells(line, rare, width=len(head)) for line in lines]


def _height(level: float, levelled: str, *, named: bool) -> str:
    """A level in words, with the name of what it is counted on where that is not what runs are judged by."""
    text = f"{level:.0%}" if metric_of(levelled).share else f"{level:g}"
    return f"{title_of(levelled)} {text}" if named else text


def _cells(line: Line, rare: Sequence[str], *, width: int) -> list[str]:
    if isinstance(line, FailedRun):
        return [line.label, str(line.seed), "failed", *["-"] * (width - 3)]
    counted = {
        "virtual s": "-" if line.virtual_seconds is None else f"{line.virtual_seconds:.0f}",
        "kJ": "-" if line.joules is None else f"{line.joules / 1000:.3g}",
        "free rounds": f"{line.free_rounds:g}",
        "unsolved": f"{line.unsolved:g}",
        "bounded": f"{line.bounded:g}",
        "diverged": line.diverged or "-",
        "epsilon": "-" if line.epsilon is None else f"{line.epsilon:.4g}",
        "as published": "-" if line.as_published is None else f"{line.as_published:.4g}",
    }
    return [
        line.label,
        str(line.seed),
        *(_number(value, line.measure) for value in (line.best, line.last, line.last_five)),
        *(_number(value, name) for name, value in line.figures.items()),
        *("-" if rounds is None else f"{rounds:g}" for rounds in line.rounds_to),
        *map(_megabytes, line.megabytes_to),
        *("-" if seconds is None else f"{seconds:.0f}" for seconds in line.seconds_to),
        *([f"{line.forgetting:.3f}"] if line.measure == "accuracy" else []),
        _megabytes(line.megabytes),
        f"{line.cpu_seconds:.1f}",
        *(counted[title] for title in rare),
    ]


def text(lines: Sequence[Line], levels: Sequence[float]) -> str:
    """The table for a terminal or a Markdown file."""
    return markdown(*cells(lines, levels))


def notes(lines: Sequence[Line]) -> list[str]:
    """Return what a reader must know of columns that are not in every table."""
    whole = [line for line in lines if isinstance(line, Score)]
    told = [BOUNDED] if any(line.bounded for line in whole) else []
    astray = [line for line in whole if line.diverged and line.seed != MEDIAN]
    if astray:
        told += [DIVERGED, *(f"{line.label}, seed {line.seed}: diverged: {line.why}" for line in astray)]
    return told


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells as a table whose source is aligned, too."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return f"| {' | '.join(parts)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def as_json(
    runs: Sequence[Outcome], levels: Sequence[float], standings: Sequence[VariantResult] = ()
) -> dict[str, Any]:
    """Everything that was found, for machines."""
    return {
        "levels": list(levels),
        "scores": [asdict(line) for line in scores(runs, levels) if isinstance(line, Score)],
        "standings": [_without_nan(asdict(line)) for line in standings],
        "runs": [run.as_json() for run in runs if isinstance(run, PlayedRun)],
        "failed": [asdict(run) for run in runs if isinstance(run, FailedRun)],
    }


def _without_nan(table: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for what one seed cannot tell but null."""
    return {
        key: _without_nan(value) if isinstance(value, dict) else None if value != value else value  # noqa: PLR0124 - NaN
        for key, value in table.items()
    }


def _known(values: Sequence[float | None]) -> float | None:
    """The median of those that are there."""
    there = [value for value in values if value is not None]
    return median(there) if there else None


def _megabytes(value: float | None) -> str:
    """A small model's traffic is not nothing."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _number(value: float | None, name: str) -> str:
    """Shares have three places; a loss has the size it has."""
    return "-" if value is None else f"{value:.3f}" if metric_of(name).share else f"{value:.4g}"


def _or_never(reached: Sequence[float | None]) -> float | None:
    middle = median(inf if r is None else r for r in reached)
    return None if middle == inf else middle
