"""What the operator sees while a run goes on: a live table, plain lines, or JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coordinator.device_table import device_table, ranked
from coordinator.watching import Picture, fold
from edgefl.evaluation import wording
from edgefl.evaluation.wording import size
from edgefl.events import (
    Abandoned,
    Declined,
    Disconnected,
    Done,
    Evaluating,
    Fact,
    Preparing,
    Quarantined,
    Refused,
    Round,
    Started,
    Waiting,
    as_json,
)
from edgefl.printable import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
CURVE = 48  # rounds in the little curve, if there is room
WIDEST = 100  # columns of the picture, on however wide a terminal
FADED, OLD = 30.0, 300.0  # seconds after which a note is dim, and after which it is gone
NOTES, NOTE_LINES = 3, 3  # how many notes are shown, and how much of a long one


class View(Protocol):
    """Somebody who watches a run."""

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


@dataclass(frozen=True, slots=True)
class Note:
    """Something that went wrong: when it was last seen, and how often."""

    text: str
    at: float
    times: int = 1


class LiveView:
    """A picture that is drawn anew four times a second, and fits the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.curve: list[float] = []
        self.notes: list[Note] = []
        self.picture = Picture()  # replaced as a whole: it is drawn from another thread

    def tell(self, fact: Fact) -> None:
        self.picture = fold(self.picture, fact, monotonic())
        match fact:
            case Round(accuracy=accuracy, r2=r2, bounded=bounded):
                height = r2 if accuracy is None else accuracy
                if height is not None:
                    self.curve.append(height)
                if bounded:
                    self._note(f"bounded: {', '.join(bounded)}: scaled down, see guards.norm_cap and weight_cap")
            case Evaluating():
                self.console.print(Text(wording.evaluating(fact), style="dim"))
            case Declined() | Refused() | Quarantined() | Abandoned() | Disconnected():
                self._note(_note(fact))
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
        """The whole picture: where the run stands and why it waits first, then the devices that find room."""
        p, now, outer = self.picture, monotonic(), min(WIDEST, self.console.width)
        width = outer - 4  # the frame, and a blank on either side
        waiting = Text(p.waiting, overflow="fold")
        notes = [_shown(note, now, width, self.console) for note in self.notes if now - note.at < OLD]
        traffic = f"sent up {size(p.bytes_up)}   sent down {size(p.bytes_down)}"
        room = self.console.height - 3 - 3  # the frame and the cursor's line; head, curve and traffic
        room -= len(waiting.wrap(self.console, width))
        while notes and sum(len(lines) for lines in notes) > max(0, room - 4):
            del notes[0]
        ranks, forgotten = ranked(p, now)
        rows = max(3, room - sum(len(lines) for lines in notes))
        parts: list[RenderableType] = [self._head(p, width), waiting, device_table(ranks, forgotten, rows, width)]
        parts += [Text(traffic, style="dim"), *(line for lines in notes for line in lines)]
        title = Text(f"edgefl  {p.started.run}  {p.started.algorithm}  {p.started.broker}")
        return Panel(Group(*parts), title=title, title_align="left", width=outer)

    def _head(self, p: Picture, width: int) -> RenderableType:
        total, done = p.started.rounds, p.round - 1
        where = f"round {min(done + 1, total)} of {total}"
        figures = wording.scores(p.last) if p.last else ""
        weakest = wording.weakest(p.last, p.opening.class_names if p.opening else None) if p.last else ""
        bar = min(24, max(4, width - len(where) - len(figures) - 2 * 2))
        left = min(CURVE, width - len(weakest) - 2)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(where, style="bold"),
            ProgressBar(total=total, completed=done, width=bar),
            Text(figures, style="bold green", no_wrap=True, overflow="ellipsis"),
        )
        curve = Text(spark(self.curve[-left:] if left > 0 else []), style="green", no_wrap=True, overflow="ellipsis")
        return Group(head, curve.append(f"  {weakest}" if weakest else "", style="dim"))

    def _note(self, text: str) -> None:
        """The newest last; one that was there already is counted."""
        before = sum(note.times for note in self.notes if note.text == text)
        others = [note for note in self.notes if note.text != text]
        self.notes = [*others[1 - NOTES :], Note(text, monotonic(), before + 1)]


def _shown(note: Note, now: float, width: int, console: Console) -> list[Text]:
    """The lines of a note; a long one is cut, an old one dim."""
    often = f" ({note.times} times)" if note.times > 1 else ""
    text = Text(note.text + often, style="dim" if now - note.at > FADED else "yellow", overflow="fold")
    lines = list(text.wrap(console, width))
    if len(lines) > NOTE_LINES:
        lines = lines[:NOTE_LINES]
        lines[-1].truncate(width - 1)
        lines[-1].append("…")
    return lines


def choose(*, as_json: bool) -> View:
    """JSON when asked for, the live table on a terminal, lines otherwise."""
    if as_json:
        return LineView(json_line)
    return LiveView() if sys.stdout.isatty() else LineView(plain_line)


def spark(values: list[float]) -> str:
    """A little curve between 0 and 1: of the accuracy, or of R2."""
    return "".join(BLOCKS[min(8, max(0, round(8 * v)))] for v in values)


def json_line(fact: Fact) -> str:
    """All of it, as one JSON object."""
    return json.dumps(as_json(fact))


def plain_line(fact: Fact) -> str:  # noqa: PLR0911  one fact, one line
    """For people, and of most facts nothing."""
    match fact:
        case Round():
            scores = "  " + wording.scores(fact) if fact.loss is not None else ""
            if fact.local_forgetting is not None:
                scores += f"  forgot {fact.local_forgetting:.3f} in training"
                scores += f", {fact.aggregation_forgetting:.3f} in merging"
            traffic = f"up {size(fact.bytes_up)}  down {size(fact.bytes_down)}"
            line = f"round {fact.round}  devices {fact.devices}{scores}  {traffic}  {fact.seconds:.2f} s"
            return line + wording.bounded(fact)
        case Done():
            words = [f"done: {fact.rounds} rounds", wording.scores(fact), wording.best(fact)]
            words += [wording.weakest(fact, fact.class_names), f"model {fact.model_sha256[:16]}"]
            return "  ".join(word for word in words if word)
        case Evaluating():
            return wording.evaluating(fact)
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


def _note(fact: Declined | Refused | Quarantined | Abandoned | Disconnected) -> str:
    match fact:
        case Abandoned(round=round):
            who = f"round {round}"
        case Disconnected():
            who = "broker"
        case _:
            who = fact.device
    return printable(f"{type(fact).__name__.lower()}: {who}: {fact.reason}")
