"""Progress while a run is played: a bar in a terminal, a line that is written anew in a notebook."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgefl.base.events import Done, Fact, Round, Tell
from edgefl.learn.evaluation import wording


@contextmanager
def watching(rounds: int, asked: bool | None) -> Iterator[Tell]:
    """Return what shows the progress of a run; unless asked for, nothing outside of terminals and notebooks."""
    if asked is False:
        yield _silent
    elif in_notebook():
        yield _Line(rounds, _notebook_line())
    elif sys.stderr.isatty():
        with _bar(rounds) as shown:
            yield shown
    else:
        yield _Line(rounds, _print) if asked else _silent


def in_notebook() -> bool:
    """Return whether a notebook's kernel runs this code."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def _silent(_: Fact) -> None:
    """Show nothing."""


class _Line:
    """One line for a round."""

    def __init__(self, rounds: int, write: Callable[[str], None]) -> None:
        self.rounds, self.write = rounds, write

    def __call__(self, fact: Fact) -> None:
        if isinstance(fact, Round):
            self.write(f"round {fact.round}/{self.rounds}  {wording.scores(fact)}")
        elif isinstance(fact, Done):
            words = (f"{fact.rounds} rounds", fact.stopped, wording.scores(fact), f"{fact.seconds:.1f} s")
            self.write("  ".join(word for word in words if word))


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is the news


def _notebook_line() -> Callable[[str], None]:
    """A line in the cell's output, which the next one replaces."""
    display = sys.modules["IPython"].display
    handle = display.display({"text/plain": "..."}, raw=True, display_id=True)
    return lambda line: handle.update({"text/plain": line}, raw=True)


@contextmanager
def _bar(rounds: int) -> Iterator[Tell]:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    news = TextColumn("{task.fields[news]}", markup=False)
    with Progress(*columns, news, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=rounds, news="")

        def tell(fact: Fact) -> None:
            if isinstance(fact, Round):
                progress.update(bar, completed=fact.round, news=wording.scores(fact))

        yield tell
