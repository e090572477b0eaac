"""What a run's folder tells: its facts, once more and in order, for whoever wants an overview of it.

The journal has the story, metrics.jsonl what each round came to. They are written one after the other, so after a crash
one may have a round that the other has not, until the run goes on; the figures are always those of metrics.jsonl. Whose
run it is may be at work meanwhile.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from coordinator import journal, modes
from coordinator.journal import Journal
from coordinator.metrics_file import Line, MetricsFile, Report, number, reports
from edgefl.errors import ConfigError
from edgefl.events import Fact, Started, Waiting
from edgefl.overview.overview import Overview
from edgefl.protocol.address import parse
from edgefl.system.disk import Disk, FolderDisk


def overview(disk: Disk) -> Overview:
    """All that a run's folder tells, folded."""
    known = Overview()
    for fact in facts(disk):
        known.tell(fact)
    return known


def complete_metrics(disk: Disk) -> MetricsFile:
    """The metrics of a run that goes on, with what stood in the journal alone when its coordinator was killed."""
    metrics = MetricsFile(disk)
    metrics(*Journal(disk, reading=True).story())
    return metrics


def run_disk(path: Path) -> FolderDisk:
    """The folder of a run, given by its own name or by that of a file in it."""
    disk = FolderDisk(path.parent if path.is_file() else path)
    if not journal.exists(disk):
        raise ConfigError(f"{disk.where(journal.NAME)}: no such journal; name the folder of a run, e.g. runs/demo")
    return disk


def facts(disk: Disk) -> Iterator[Fact]:
    """Everything that happened."""
    book = Journal(disk, reading=True)
    figures = {number(fact): fact for fact in reports(disk)}
    story = list(book.story())
    yield from _started(book, story)
    for fact in story:
        told = figures.pop(number(fact), fact) if isinstance(fact, Report) else fact
        yield from _earlier(figures, fact.at)
        yield told
    yield from figures.values()
    yield from _waiting(book, story)


def _waiting(book: Journal, story: list[Fact]) -> Iterator[Waiting]:
    """Why it waits, or waited when its coordinator ended: that is never written down."""
    state = book.rounds()
    if state is not None and not book.get("done"):
        yield Waiting(modes.waiting(state), at=story[-1].at if story else 0.0)


def _earlier(figures: dict[Line, Report], at: float) -> Iterator[Fact]:
    """Reports of before, which the journal does not have."""
    for line in [line for line, report in figures.items() if report.at < at]:
        yield figures.pop(line)


def _started(book: Journal, story: list[Fact]) -> Iterator[Started]:
    """What the run is: nobody tells it that again."""
    text = book.get("run")
    if text is None:
        return
    run = json.loads(text)
    at = story[0].at if story else 0.0
    broker, algorithm = str(parse(run["broker"]["url"])), str(run["algorithm"]["name"])
    about = run["run"]["rounds"], run["rounds"]["deadline"]
    yield Started(run["run"]["name"], book.get("run_id") or "", broker, "", algorithm, *about, at=at)
