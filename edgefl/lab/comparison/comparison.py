"""A comparison as one call: every variant with every seed, and what came of it as data.

result = compare(variants("fedavg,fedprox:mu=0.1", table, "run.toml"), seeds=5)
print(result.text())
result.write(Path("results"))
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Tell
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison import report, table
from edgefl.lab.comparison.cache import ResultCache, place
from edgefl.lab.comparison.outcomes import FailedRun, Outcome, Play, PlayedRun
from edgefl.lab.comparison.preparing import Preparation, briefly
from edgefl.lab.comparison.running import ResultStore, Watcher, play_all
from edgefl.lab.comparison.significance import VariantResult, standings
from edgefl.lab.comparison.variants import Variant
from edgefl.learn.evaluation.wording import AS_ON_A_FLEET
from edgefl.sim.drivers import Prepare, play

log = logging.getLogger(__name__)

LEVELS = (0.5, 0.7, 0.9)

Watching: TypeAlias = Callable[[dict[str, int], int], AbstractContextManager[Watcher]]


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """What came of it: every run by variant and seed, and what they say together."""

    variants: tuple[Variant, ...]
    outcomes: tuple[Outcome, ...]
    levels: tuple[float, ...] = LEVELS
    baseline: str | None = None  # the label that the others are tested against; the first one unless said

    @property
    def played(self) -> tuple[PlayedRun, ...]:
        """The runs that came to their end."""
        return tuple(run for run in self.outcomes if isinstance(run, PlayedRun))

    @property
    def failed(self) -> tuple[FailedRun, ...]:
        """The runs that did not."""
        return tuple(run for run in self.outcomes if isinstance(run, FailedRun))

    def scores(self) -> list[table.Line]:
        """Every run's line, and the medians over the seeds."""
        return table.scores(self.outcomes, self.levels)

    def standings(self) -> list[VariantResult]:
        """Mean, spread, interval and paired test of each variant."""
        return standings(self.played, self.baseline)

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return table.as_json(self.outcomes, self.levels, self.standings())

    def text(self) -> str:
        """The tables, for a terminal or a Markdown file."""
        return report.tables(self.scores(), self.levels, self.standings())

    def write(self, folder: Path) -> Path:
        """Leave tables, pictures and everything else in the folder; gives back the page that shows them."""
        return report.write(folder, self.variants, self.outcomes, self.levels, standings=self.standings())


def compare(
    variants: Sequence[Variant],
    *,
    seeds: int = 1,
    workers: int = 1,
    root: Path | None = None,
    memory: ResultStore | None = None,
    watching: Watching | None = None,
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    play: Play | None = None,
    attempt: Play | None = None,
    guards_told: bool = True,
) -> ComparisonResult:
    """Play every variant with every seed, from its own `run.seed` on; a mistake in one is said before any is played.

    `memory` keeps finished runs, and unfinished ones (`ResultCache`). A caller that has data and network already hands
    in a `play`, and an `attempt` if there is a way to try a run briefly. A caller that compares several times says
    itself what guards did in all of it (`tell_of_guards`).
    """
    check(variants, baseline)
    for caution in dict.fromkeys(line for variant in variants for line in variant.run.cautions):  # each line once
        log.warning("%s", caution)
    rounds = {variant.label: variant.run.run.rounds for variant in variants}
    with watching(rounds, seeds) if watching else nullcontext() as watcher:
        outcomes = play_all(
            variants,
            seeds,
            root,
            play or partial(play_prepared, unfinished=memory.unfinished if memory else None),
            workers=workers,
            watcher=watcher,
            memory=memory,
            attempt=attempt if play else attempt_prepared,
        )
    compared = ComparisonResult(tuple(variants), outcomes, tuple(levels), baseline)
    if guards_told:
        tell_of_guards(compared)
    return compared


def tell_of_guards(*compared: ComparisonResult) -> None:
    """Log one caution if `[guards]` scaled down any answer of these runs, with the labels of the runs."""
    runs = [run for one in compared for run in one.played]
    labels = dict.fromkeys(run.label for run in runs if run.bounded)
    if labels:
        count = sum(run.bounded for run in runs)
        log.warning("[guards] scaled down %d answers in %s, %s", count, ", ".join(labels), AS_ON_A_FLEET)


def check(variants: Sequence[Variant], baseline: str | None) -> None:
    """Refuse what cannot be compared."""
    labels = [variant.label for variant in variants]
    if not all(variant.run.task.partition for variant in variants):
        raise ConfigError("a comparison divides one data set among devices: give task.partition")
    if baseline is not None and baseline not in labels:
        raise ConfigError(f"baseline '{baseline}' is none of {', '.join(labels)}")


def kept_in(folder: Path, root: Path | None = None, *, fresh: bool = False) -> ResultCache:
    """Runs in a folder: what is finished there is not played again, and what is not goes on."""
    return ResultCache(folder, root, fresh=fresh)


def play_prepared(run: RunFile, root: Path | None, tell: Tell, *, unfinished: Path | None = None) -> None:
    """Play a run on what this process has prepared for the one before, where they share it."""
    played(run, root, tell, prepare=_preparation(), unfinished=unfinished)


def played(run: RunFile, root: Path | None, tell: Tell, *, prepare: Prepare, unfinished: Path | None) -> None:
    """Play a run, or go on with it where it is kept until it has ended, if that is anywhere."""
    if unfinished is None:
        play(run, root, tell, prepare=prepare)
        return
    from edgefl.sim.run_folder import play_on  # noqa: PLC0415 - the coordinator's files come with it

    play_on(run, root, tell, folder=place(unfinished, run, root), prepare=prepare)


def attempt_prepared(run: RunFile, root: Path | None, tell: Tell) -> None:
    """Try a run for two rounds of one mini-batch."""
    briefly(*_preparation()(run, root))
    tell(Done(run.run.name, "", 0))


@cache
def _preparation() -> Preparation:
    """One for this process: what it made for a run serves the next."""
    return Preparation()
