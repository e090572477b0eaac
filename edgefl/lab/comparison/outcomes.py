"""One run of a comparison: what is asked, and what came of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError, EdgeflError, RunError
from edgefl.base.events import DIVERGED, Described, Done, Evaluated, Evaluating, Fact, Round, Tell, as_record
from edgefl.job.config.schema import RunFile
from edgefl.learn.evaluation import metrics
from edgefl.learn.evaluation.figures import growing, judged_by, metric_of
from edgefl.learn.evaluation.judged_rounds import first_model, judged_rounds

log = logging.getLogger(__name__)

Play: TypeAlias = Callable[[RunFile, Path | None, Tell], None]  # a module's own function: it travels to processes
Progress: TypeAlias = Callable[[str, int], None]  # told of every round: which variant, which seed


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """One run: what it told, round by round, and at its end."""

    label: str
    seed: int
    rounds: tuple[Round, ...]
    done: Done
    split: str = "test"  # what its models were judged by; or "validation", a part of the training data
    first: Round | None = None  # the model it began with, as a round 0, where that was judged
    bounded_beside: int = 0  # descriptions and evaluations of devices that `[guards]` scaled down

    def as_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "label": self.label,
            "seed": self.seed,
            "split": self.split,
            "first": as_record(self.first) if self.first else None,
            "bounded_beside": self.bounded_beside,
            "rounds": [as_record(report) for report in self.rounds],
            "done": as_record(self.done),
        }

    @property
    def bounded(self) -> int:
        """How many answers `[guards]` scaled down: updates, descriptions and evaluations."""
        return sum(len(report.bounded) for report in self.rounds) + self.bounded_beside

    @property
    def diverged(self) -> bool:
        """Whether learning left the finite numbers: the rounds are those before it did."""
        return self.done.stopped == DIVERGED

    @property
    def paid(self) -> list[Round]:
        """The rounds that asked devices, each as it stood when the next one began.

        A free round asks no device: it belongs to the round before it, whose report then is that of the model after
        both.
        """
        ends: list[Round] = []
        for report in self.rounds:
            if is_free(report) and ends:
                ends[-1] = report
            else:
                ends.append(report)
        return ends

    @property
    def free(self) -> int:
        """Return how many rounds asked no device."""
        return sum(is_free(report) for report in self.rounds)

    @property
    def numbers(self) -> list[int]:
        """Which of the rounds that asked devices were judged, counted from one; all, unless it was every nth."""
        return [number for number, report in enumerate(self.paid, 1) if is_judged(report)]

    @property
    def has_classes(self) -> bool:
        """Whether one class of each sample is learnt: then there are classes to forget."""
        return self._judged_first.accuracy is not None

    @property
    def measure(self) -> str:
        """What it is judged by."""
        return judged_by(self._judged_first.scores)

    @property
    def lower(self) -> bool:
        """Whether it is the better the lower that is."""
        return not metric_of(self.measure).higher

    @property
    def levelled(self) -> str | None:
        """What levels are counted on, the higher the better: accuracy, R2, or the first share that its task has."""
        counted = growing(self._judged_first.scores)
        return counted.name if counted else None

    @property
    def quality(self) -> list[float]:
        """What levels are counted on; nothing, where there is no such figure."""
        return [] if self.levelled is None else self.column(self.levelled)

    @property
    def judged(self) -> list[float]:
        """What it is judged by, of every judged round."""
        return self.column(self.measure)

    @property
    def best(self) -> str:
        """Its best round, in words."""
        where = "" if self.split == "test" else f" on {self.split} data"
        judged = self.judged or [value for value in (self._judged_first.scores.get(self.measure),) if value is not None]
        metric, value = metric_of(self.measure), (min if self.lower else max)(judged)
        word = "best" if self.has_classes else f"best {metric.title}"
        return f"{word}{where} {value:.1%}" if metric.share else f"{word}{where} {value:.4g}"

    def column(self, name: str) -> list[float]:
        """One number of every judged round; one that is not there (R2 of targets that do not vary) is NaN."""
        reports = self.paid
        return [nan if (value := reports[i - 1].scores.get(name)) is None else value for i in self.numbers]

    @property
    def _judged_first(self) -> Round:
        """The first model that was judged: one that diverged at once has none but the one it began with."""
        if not self.numbers and self.first is not None:
            return self.first
        return self.paid[self.numbers[0] - 1]

    @property
    def last_report(self) -> Round:
        """The last round, or the model it began with where it diverged in the first one."""
        return self.rounds[-1] if self.rounds else self._judged_first

    @property
    def forgetting(self) -> list[float]:
        """From one judged round to the next; before the first, and without classes, there was nothing to forget."""
        if not self.has_classes:
            return []
        reports = self.paid
        judged = [reports[i - 1] for i in self.numbers]
        if not self.free and all(report.forgetting is not None for report in judged[1:]):
            return [report.forgetting for report in judged[1:] if report.forgetting is not None]
        classes = [[nan if v is None else v for v in report.per_class or ()] for report in judged]
        return metrics.round_forgetting(np.array(classes)).tolist() if len(classes) > 1 else []

    def summed(self, *keys: str) -> list[float]:
        """A running total after every judged round, e.g. of `bytes_up` and `bytes_down`."""
        total, sums = 0.0, list[float]()
        for report in self.rounds:
            total += sum(getattr(report, key) or 0 for key in keys)
            if is_free(report) and sums:
                sums[-1] = total
            else:
                sums.append(total)
        return [sums[number - 1] for number in self.numbers]


def ended(runs: Sequence[PlayedRun]) -> list[PlayedRun]:
    """Return the runs that did not diverge; all of them, where every one did."""
    return [run for run in runs if not run.diverged] or list(runs)


def is_judged(report: Round) -> bool:
    """Return whether its model was evaluated."""
    return bool(report.scores)


def is_free(report: Round) -> bool:
    """Whether this round asked no device."""
    return report.devices == 0


@dataclass(frozen=True, slots=True)
class FailedRun:
    """One run that did not come to its end, and why; `mistake` says that the run file or the command is wrong."""

    label: str
    seed: int
    why: str
    mistake: bool = False


Outcome: TypeAlias = PlayedRun | FailedRun


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run that is to be played."""

    label: str
    run: RunFile

    @property
    def seed(self) -> int:
        return self.run.run.seed


def _check_judged(played: PlayedRun, every: int) -> None:
    """Raise `RunError` if there is nothing to compare the run by."""
    if played.diverged:
        if not played.numbers and played.first is None:
            raise RunError(f"diverged before any model was judged: {played.done.why}")
    elif len(played.numbers) < (len(played.paid) if every == 1 else 1):
        raise RunError("a round was not judged: no device has that much data set aside (evaluation.least)")


def play_one(order: PlannedRun, root: Path | None, play: Play, progress: Progress) -> Outcome:
    """Play one run; whatever goes wrong in it is its own."""
    told: list[Fact] = []
    done, split, every = Done(order.run.run.name, "", 0), "test", order.run.evaluation.every
    beside = 0

    def tell(fact: Fact) -> None:
        nonlocal done, split, beside
        if isinstance(fact, Round | Evaluated | Evaluating | Done):
            told.append(fact)
        if isinstance(fact, Described | Evaluated):
            beside += fact.bounded
        elif isinstance(fact, Done):
            done = fact
        elif isinstance(fact, Evaluating):
            split = fact.split
        elif isinstance(fact, Round):
            if every == 1 and not is_judged(fact) and not order.run.judged_by_devices:
                raise RunError("nothing to compare by; give task.data with a test part")
            progress(order.label, order.seed)

    try:
        play(order.run, root, tell)
        rounds = tuple(judged_rounds(told))
        played = PlayedRun(order.label, order.seed, rounds, done, split, first_model(told), beside)
        _check_judged(played, every)
    except EdgeflError as error:
        return FailedRun(order.label, order.seed, str(error), mistake=isinstance(error, ConfigError))
    except Exception as error:  # a model, data set or algorithm of the user's may raise anything
        log.debug("run failed label=%s seed=%d", order.label, order.seed, exc_info=True)
        return FailedRun(order.label, order.seed, f"{type(error).__name__}: {error} (--log debug shows where)")
    return played
