"""Playing the variants: every variant with every seed, one after another or several at a time.

A run that fails is one line of the comparison, not its end; a mistake in the run file or the command is its end, before
anything is played: every variant is tried first, briefly. What is finished is written down at once, and the same
comparison plays it only once; what is not goes on where it was interrupted.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from edgefl.base.errors import ConfigError
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.outcomes import FailedRun, Outcome, PlannedRun, Play, PlayedRun, Progress, play_one
from edgefl.lab.comparison.process_pool import play_apart
from edgefl.lab.comparison.shared_networks import shared
from edgefl.lab.comparison.variants import Variant, seeded


class Watcher(Protocol):
    """What is told of the progress of a comparison."""

    def advanced(self, label: str, seed: int) -> None:
        """A round is over."""

    def ended(self, outcome: Outcome, *, before: bool) -> None:
        """A run is over; `before` says that it was found, not played."""


class ResultStore(Protocol):
    """Where finished runs are kept, and unfinished ones until they are."""

    @property
    def unfinished(self) -> Path: ...

    def find(self, run: RunFile) -> PlayedRun | None: ...

    def add(self, run: RunFile, played: PlayedRun) -> None: ...


def play_all(
    variants: Sequence[Variant],
    seeds: int,
    root: Path | None,
    play: Play,
    *,
    workers: int = 1,
    watcher: Watcher | None = None,
    memory: ResultStore | None = None,
    attempt: Play | None = None,
) -> tuple[Outcome, ...]:
    """Every variant with every seed, by variant and then by seed, whatever finished first.

    They are played by seed and then by variant, so that what one seed needs is prepared once.
    """
    orders = [PlannedRun(v.label, seeded(v.run, v.run.run.seed + i)) for v in variants for i in range(seeds)]
    outcomes: dict[int, Outcome] = {}

    def end(i: int, outcome: Outcome, *, before: bool) -> None:
        outcomes[i] = outcome
        if memory and not before and isinstance(outcome, PlayedRun):
            memory.add(orders[i].run, outcome)
        if watcher:
            watcher.ended(outcome, before=before)

    for i, order in enumerate(orders):
        if memory and (known := memory.find(order.run)):
            end(i, replace(known, label=order.label), before=True)
    by_seed = sorted(set(range(len(orders))) - set(outcomes), key=lambda i: orders[i].seed)
    missing = {i: orders[i] for i in by_seed}
    progress: Progress = watcher.advanced if watcher else lambda _label, _seed: None
    with shared() if workers > 1 else nullcontext():
        if attempt:
            _try_each(missing.values(), root, attempt)
        if workers == 1:
            playing: Iterator[tuple[int, Outcome]] = (
                (i, play_one(o, root, play, progress)) for i, o in missing.items()
            )
        else:
            playing = play_apart(missing, root, play, workers=workers, progress=progress)
        for i, came in playing:
            _stop_at_mistakes(came)
            end(i, came, before=False)
    return tuple(outcomes[i] for i in range(len(orders)))


def _try_each(orders: Iterable[PlannedRun], root: Path | None, attempt: Play) -> None:
    """Try the first order of every label."""
    tried = set[str]()
    for order in orders:
        if order.label not in tried:
            _stop_at_mistakes(play_one(order, root, attempt, lambda _label, _seed: None))
        tried.add(order.label)


def _stop_at_mistakes(outcome: Outcome) -> None:
    if isinstance(outcome, FailedRun) and outcome.mistake:
        raise ConfigError(f"{outcome.label}: {outcome.why}")
