"""A run on a terminal: where it stands, why it waits, its devices and what went wrong. It fits, whatever the size."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edgefl.learn.evaluation import wording
from edgefl.learn.evaluation.figures import growing
from edgefl.learn.evaluation.wording import size
from edgefl.watch.device_table import device_table, ranked
from edgefl.watch.overview.rows import Note, RoundRow, RunRow, Snapshot

BLOCKS = " ▁▂▃▄▅▆▇█"
CURVE = 48  # rounds in the little curve, if there is room
WIDEST = 100  # columns of the picture, on however wide a terminal
FADED, OLD = 30.0, 300.0  # seconds after which a note is dim, and after which it is gone
NOTES, NOTE_LINES = 3, 3  # how many notes are shown, and how much of a long one


def picture(s: Snapshot, console: Console, now: float, *, above: int = 0) -> RenderableType:
    """The whole picture: where the run stands and why it waits first, then the devices that find room.

    `above` is how many lines of the terminal are taken already.
    """
    outer = min(WIDEST, console.width)
    width = outer - 4  # the frame, and a blank on either side
    waiting = Text(_waiting(s.run), overflow="fold")
    notes = [note_lines(note, now, width, console) for note in s.notes if now - note.at < OLD][-NOTES:]
    up, down = s.run.bytes_up, s.run.bytes_down
    if s.open:
        up, down = up + s.open.bytes_up, down + s.open.bytes_down
    room = console.height - above - 3 - 3  # the frame and the cursor's line; head, curve and traffic
    room -= len(waiting.wrap(console, width))
    while notes and sum(len(lines) for lines in notes) > max(0, room - 4):
        del notes[0]
    ranks, forgotten = ranked(s, now)
    rows = max(3, room - sum(len(lines) for lines in notes))
    parts: list[RenderableType] = [_head(s, width), waiting, device_table(ranks, forgotten, rows, width)]
    parts.append(Text(f"sent up {size(up)}   sent down {size(down)}", style="dim"))
    parts += [line for lines in notes for line in lines]
    title = Text(f"edgefl  {s.run.name}  {s.run.algorithm}  {s.run.broker}")
    return Panel(Group(*parts), title=title, title_align="left", width=outer)


def _waiting(run: RunRow) -> str:
    """Why it waits; what is wrong goes first."""
    if run.paused and not run.waiting.startswith("paused"):
        return f"paused: {run.paused}"
    return run.waiting


def _head(s: Snapshot, width: int) -> RenderableType:
    total, last = s.run.rounds, s.opinion
    done = s.open.round - 1 if s.open else s.run.rounds_done
    where = f"round {min(done + 1, total)} of {total}"
    names = s.run.evaluating.names if s.run.evaluating else None
    figures = wording.scores(last) if last else ""
    weakest = wording.weakest(last, names) if last else ""
    bar = min(24, max(4, width - len(where) - len(figures) - 2 * 2))
    left = min(CURVE, width - len(weakest) - 2)
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(where, style="bold"),
        ProgressBar(total=total, completed=done, width=bar),
        Text(figures, style="bold green", no_wrap=True, overflow="ellipsis"),
    )
    line = Text(spark(heights(s.rounds)[-left:] if left > 0 else []), style="green", no_wrap=True, overflow="ellipsis")
    return Group(head, line.append(f"  {weakest}" if weakest else "", style="dim"))


def heights(rounds: Sequence[RoundRow]) -> list[float]:
    """What the little curve shows: the accuracy, R2, or the first figure of another kind of task that is a share."""
    each = (growing(row.opinion.scores) for row in rounds if row.opinion)
    return [figure.value for figure in each if figure and figure.value is not None]


def spark(values: list[float]) -> str:
    """A little curve between 0 and 1."""
    return "".join(BLOCKS[min(8, max(0, round(8 * v)))] for v in values)


def note_lines(note: Note, now: float, width: int, console: Console) -> list[Text]:
    """The lines of a note; a long one is cut, an old one dim."""
    often = f" ({note.times} times)" if note.times > 1 else ""
    style = "dim" if now - note.at > FADED or note.kind == "info" else "yellow"
    lines = list(Text(note.text + often, style=style, overflow="fold").wrap(console, width))
    if len(lines) > NOTE_LINES:
        lines = lines[:NOTE_LINES]
        lines[-1].truncate(width - 1)
        lines[-1].append("…")
    return lines
