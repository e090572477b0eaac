"""What a run's folder tells: its facts, once more and in order, for an overview of it.

The journal has the story, metrics.jsonl what each round came to. They are written one after the other, so after a crash
one may have a round that the other has not, until the run goes on; the figures are always those of metrics.jsonl. The
coordinator may be at work meanwhile.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from coordinator.decide import modes
from coordinator.durable import journal
from coordinator.durable.journal import Journal
from coordinator.durable.run_table import run_table
from edgefl.base import events
from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.events import Fact, Started, Waiting
from edgefl.base.report_numbers import LastReports, Report, number
from edgefl.system.disk import Disk, FolderDisk
from edgefl.watch import fact_lines
from edgefl.watch.metrics_file import MetricsFile, MetricsReader
from edgefl.watch.overview.overview import Overview
from edgefl.wire.address import parse


def overview(disk: Disk, book: Journal | None = None) -> Overview:
    """All that a run's folder tells, folded; `book` is its journal, if that is open already."""
    known = Overview()
    for fact in facts(disk, book):
        known.tell(fact)
    return known


def complete_metrics(book: Journal) -> MetricsFile:
    """The metrics of a run that goes on, with what stood in the journal alone when its coordinator was killed."""
    metrics = MetricsFile(book.disk)
    metrics(*book.story())
    return metrics


def run_disk(path: Path) -> FolderDisk:
    """The folder of a run, given by its own name or by that of a file in it."""
    disk = FolderDisk(path.parent if path.is_file() else path)
    if not journal.exists(disk):
        raise ConfigError(f"{disk.where(journal.NAME)}: no such journal; name the folder of a run, e.g. runs/demo")
    return disk


def facts(disk: Disk, book: Journal | None = None) -> list[Fact]:
    """Everything that happened."""
    return _Reader(disk, book).look()


class Follower:
    """Follows a run's folder while its coordinator writes there."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._reader: _Reader | None = None

    def look(self) -> tuple[list[Fact], bool]:
        """What was written since the last look, and whether it begins anew: at first, or with another story."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(StoreError, OSError):  # another run is there, or files went while they were read
                told = reader.look()
                self._reader = reader
                return told, False
        reader = _Reader(self._disk)
        told = reader.look()
        if reader.begun:  # else the next look must not take another run for the continuation of a half deleted one
            self._reader = reader
        return told, True


class _Reader:
    """Reads a folder from its beginning, and then what is added; after a StoreError it is of no use."""

    def __init__(self, disk: Disk, book: Journal | None = None) -> None:
        self._book = book or Journal(disk, reading=True)
        self._metrics = MetricsReader(disk)
        self._looked = self._began = False
        self._reports = LastReports()
        self._reason = ""

    @property
    def begun(self) -> bool:
        """Return whether the journal holds anything of a run."""
        return self._book.begun

    def look(self) -> list[Fact]:
        """The facts that are new."""
        figures = {number(fact): fact for fact in self._metrics.read_on() if not self._reports.has(fact)}
        story = self._book.read_on() if self._looked else self._book.story()
        facts = [fact for fact in story if not self._reports.has(fact)]
        self._looked = True
        told = [*self._started(facts), *_completed(facts, figures)]
        told += self._waiting(facts)
        self._reports.add(*told)
        return told

    def _started(self, facts: list[Fact]) -> Iterator[Started]:
        """Return what the run is: that is told once."""
        run = None if self._began else run_table(self._book)
        if run is None:
            return
        self._began = True
        at = facts[0].at if facts else 0.0
        broker, algorithm = str(parse(run["broker"]["url"])), str(run["algorithm"]["name"])
        about = run["run"]["rounds"], run["rounds"]["deadline"]
        yield Started(run["run"]["name"], self._book.get("run_id") or "", broker, "", algorithm, *about, at=at)

    def _waiting(self, facts: list[Fact]) -> Iterator[Waiting]:
        """Why it waits, or waited when its coordinator ended: that is never written down."""
        state = self._book.rounds()
        reason = modes.waiting(state) if state is not None and not self._book.get("done") else ""
        if reason and reason != self._reason:
            yield Waiting(reason, at=facts[-1].at if facts else 0.0)
        self._reason = reason


def _completed(facts: Iterable[Fact], figures: dict[tuple[str, int], Report]) -> Iterator[Fact]:
    """The story with its figures; reports that the journal does not have stand in their place."""
    for fact in facts:
        told = figures.pop(number(fact), fact) if isinstance(fact, Report) else fact
        for line in [line for line, report in figures.items() if report.at < fact.at]:
            yield figures.pop(line)
        yield told
    yield from figures.values()


def lines(disk: Disk, device: str | None = None, round: int | None = None, *, as_json: bool = False) -> Iterator[str]:
    """One line for each thing that happened; whose run it is may be at work meanwhile."""
    for fact in Journal(disk, reading=True).story(device, round):
        yield json.dumps(events.as_record(fact)) if as_json else fact_lines.line(fact)
