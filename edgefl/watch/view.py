"""What the operator sees while a run goes on: a live table, plain lines, or JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from time import time
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from edgefl.base.events import (
    Abandoned,
    Declined,
    Described,
    Disconnected,
    Done,
    Evaluated,
    Evaluating,
    Fact,
    Inherited,
    Preparing,
    Quarantined,
    Refused,
    Round,
    Shown,
    Started,
    Waiting,
    as_record,
)
from edgefl.base.printable import printable
from edgefl.learn.evaluation import wording
from edgefl.learn.evaluation.wording import size
from edgefl.watch.overview.overview import Overview
from edgefl.watch.terminal_view import picture


class View(Protocol):
    """A view of a run."""

    def tell(self, fact: Fact) -> None: ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Say what keeps us from the run for some seconds."""
        ...

    def watching(self) -> AbstractContextManager[None]:
        """From here on the run goes on, until it has ended."""
        ...


class LineView:
    """A line on stdout for what there is to say of a fact: for logs and pipes, or for programs."""

    def __init__(self, line: Callable[[Fact], str]) -> None:
        self.line = line

    def tell(self, fact: Fact) -> None:
        if line := self.line(fact):
            print(line, flush=True)  # noqa: T201 - this is the result

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        self.tell(Preparing(what))
        yield

    def watching(self) -> AbstractContextManager[None]:
        return nullcontext()


class LiveView:
    """A picture that is drawn anew four times a second, and fits the terminal."""

    def __init__(self, console: Console | None = None, wall: Callable[[], float] = time) -> None:
        self.console, self.wall = console or Console(), wall
        self.overview = Overview()
        self._lock = Lock()  # it is drawn from another thread

    def tell(self, fact: Fact) -> None:
        with self._lock:
            self.overview.tell(fact)
        match fact:
            case Evaluating():
                self.console.print(Text(wording.evaluating(fact), style="dim"))
            case Shown():
                self.console.print(Text(shown(fact), style="bold" if fact.url else "yellow"))
            case Inherited():
                self.console.print(Text(wording.inherited(fact), style="dim"))
            case Started(key=key):
                self.console.print(f"models are signed by {key}", style="dim", highlight=False)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        with self.console.status(Text(what)):
            yield

    @contextmanager
    def watching(self) -> Iterator[None]:
        with Live(console=self.console, refresh_per_second=4, get_renderable=self.draw):
            yield

    def draw(self) -> RenderableType:
        """The whole picture."""
        with self._lock:
            return picture(self.overview.snapshot(), self.console, self.wall())


def choose(*, as_json: bool) -> View:
    """JSON when asked for, the live table on a terminal, lines otherwise."""
    if as_json:
        return LineView(json_line)
    return LiveView() if sys.stdout.isatty() else LineView(plain_line)


def json_line(fact: Fact) -> str:
    """All of it, as one JSON object."""
    return json.dumps(as_record(fact))


def plain_line(fact: Fact) -> str:  # noqa: C901, PLR0911, PLR0912  one fact, one line
    """For people, and of most facts nothing."""
    match fact:
        case Round():
            scores = "  " + wording.scores(fact) if fact.scores else ""
            if fact.local_forgetting is not None:
                scores += f"  forgot {fact.local_forgetting:.3f} in training"
                scores += f", {fact.aggregation_forgetting:.3f} in merging"
            traffic = f"up {size(fact.bytes_up)}  down {size(fact.bytes_down)}"
            age = "" if fact.staleness is None else f"  {fact.staleness:.1f} rounds old"
            line = f"round {fact.round}  devices {fact.devices}{age}{scores}  {traffic}  {fact.seconds:.2f} s"
            return line + wording.bounded(fact)
        case Evaluated(round=round):
            return f"after round {round}  {wording.evaluated(fact)}"
        case Done():
            words = [f"done: {fact.rounds} rounds", fact.stopped, wording.scores(fact), wording.best(fact)]
            words += [wording.weakest(fact, fact.names), f"model {fact.model_sha256[:16]}"]
            return "  ".join(word for word in words if word)
        case Evaluating():
            return wording.evaluating(fact)
        case Described():
            return wording.described(fact)
        case Shown():
            return shown(fact)
        case Inherited():
            return wording.inherited(fact)
        case Preparing(what=what):
            return f"{what} ..."
        case Started(run=run, broker=broker, key=key):
            return f"run '{run}' waits for devices at {broker}\nits models are signed by {key}"
        case Waiting(reason=reason, lasts=True):
            return printable(reason)
        case Declined() | Refused() | Quarantined() | Abandoned() | Disconnected():
            return _note(fact)
        case _:
            return ""


def shown(fact: Shown) -> str:
    """Where to look, or why there is nothing to look at."""
    if not fact.url:
        return printable(f"no page is served: {fact.note}")
    return printable(f"watch it at {fact.url}" + (f"  ({fact.note})" if fact.note else ""))


def _note(fact: Declined | Refused | Quarantined | Abandoned | Disconnected) -> str:
    match fact:
        case Abandoned(round=round):
            who = f"round {round}"
        case Disconnected():
            who = "broker"
        case _:
            who = fact.device
    return printable(f"{type(fact).__name__.lower()}: {who}: {fact.reason}")
