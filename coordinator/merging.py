"""Merging, in a thread of its own: the next model, the rounds behind it that need nobody, and the checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from coordinator import checkpoint
from edgefl import job as jobs
from edgefl.algorithms.base import Update
from edgefl.errors import StoreError
from edgefl.job import Course, Job

RETRY = 1.0  # seconds between two attempts to write to a full disk


@dataclass(frozen=True, slots=True)
class Merged:
    """The next model is made and on disk."""

    course: Course
    reports: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Stuck:
    """It is made, but cannot be written yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """It could not be made."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Merging:
    """Everything one merge needs, so that its thread reads nothing of the coordinator's."""

    job: Job
    course: Course
    updates: Mapping[str, Update]
    late: Mapping[str, Update]
    population: int
    spent: tuple[int, int]  # bytes up and down, of this round
    total: tuple[int, int]  # and of all
    opened: float

    def work(self, folder: Path | None, stopping: Event, put: Callable[[Merged | Stuck | Broken], None]) -> None:
        """Merge, save, and say so."""
        try:
            merged = self.merge()
            saved = checkpoint.Saved(merged.course, merged.reports, *self.total)
            if folder is not None and not _save(folder, self.job, saved, stopping, put):
                return
            put(merged)
        except Exception as error:  # noqa: BLE001 - handed to the coordinator's loop, which raises it
            put(Broken(error))

    def merge(self) -> Merged:
        """The round, then those behind it that need no device."""
        job, course, reports = self.job, self.course, []
        updates, late, spent, opened = self.updates, self.late, self.spent, self.opened
        while True:
            course = jobs.advance(job, course, updates, population=self.population, late=late)
            traffic = {"bytes_up": spent[0], "bytes_down": spent[1]}
            reports.append(jobs.report(course, **traffic, seconds=monotonic() - opened, devices=len(updates)))
            if jobs.finished(job, course) or jobs.plan(job, course) is not None:
                return Merged(course, tuple(reports))
            updates, late, spent, opened = {}, {}, (0, 0), monotonic()


def _save(folder: Path, job: Job, saved: checkpoint.Saved, stopping: Event, put: Callable[[Stuck], None]) -> bool:
    """Write the checkpoint, however long the disk stays full; False when somebody wants an end first."""
    while True:
        try:
            checkpoint.save(folder, job, saved)
        except StoreError as error:  # noqa: PERF203 - the loop is there for the error
            put(Stuck(str(error)))
            if stopping.wait(RETRY):
                return False
        else:
            return True
