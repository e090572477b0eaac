"""Progress while a comparison is played: bars on a terminal, one line per run elsewhere."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgefl.lab.comparison.outcomes import FailedRun, Outcome
from edgefl.lab.comparison.report import reason
from edgefl.lab.comparison.running import Watcher

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def watching(rounds: Mapping[str, int], seeds: int) -> Iterator[Watcher]:
    """Return a watcher for variants with these numbers of rounds and seeds."""
    if not sys.stderr.isatty():
        yield ProgressLines(len(rounds) * seeds)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bars(progress, rounds, seeds)


class Bars:
    """One bar per variant, over all its seeds; what fails is said above them."""

    def __init__(self, progress: "Progress", rounds: Mapping[str, int], seeds: int) -> None:
        self.progress, self.rounds, self.seeds = progress, rounds, seeds
        self.tasks: dict[str, TaskID] = {
            label: progress.add_task(label, total=n * seeds, news="") for label, n in rounds.items()
        }
        self.rounds_played: dict[tuple[str, int], int] = {}
        self.ends: dict[str, list[Outcome]] = {label: [] for label in rounds}

    def advanced(self, label: str, seed: int) -> None:
        self.rounds_played[label, seed] = self.rounds_played.get((label, seed), 0) + 1
        self.progress.advance(self.tasks[label])

    def ended(self, outcome: Outcome, *, before: bool) -> None:  # noqa: ARG002 - a full bar says it
        label = outcome.label
        self.ends[label].append(outcome)
        self.progress.advance(self.tasks[label], self.rounds[label] - self.rounds_played.get((label, outcome.seed), 0))
        failed = sum(isinstance(one, FailedRun) for one in self.ends[label])
        played = [one for one in self.ends[label] if not isinstance(one, FailedRun)]
        diverged = sum(one.diverged for one in played)
        news = [max(played, key=lambda one: max(one.quality, default=0.0)).best] if played else []
        counts = {"failed": failed, "diverged": diverged}
        words = [*news, *(f"{count} {what}" for what, count in counts.items() if count)]
        self.progress.update(self.tasks[label], news=", ".join(words))
        if isinstance(outcome, FailedRun):
            self.progress.console.print(reason(outcome), markup=False, highlight=False, style="red")


class ProgressLines:
    """One plain line per finished run, on stderr."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0

    def advanced(self, label: str, seed: int) -> None:
        """Of no interest to a log file."""

    def ended(self, outcome: Outcome, *, before: bool) -> None:
        self.count += 1
        if isinstance(outcome, FailedRun):
            line = reason(outcome)
        else:
            how = "known from before" if before else f"played in {outcome.done.seconds:.1f} s"
            end = f", diverged in round {outcome.done.rounds + 1}" if outcome.diverged else ""
            line = f"{outcome.label}, seed {outcome.seed}: {outcome.best}{end}, {how}"
        print(f"[{self.count}/{self.total}] {line}", file=sys.stderr, flush=True)  # noqa: T201 - this is the news
