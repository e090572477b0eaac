"""Merging, in a thread of its own: the next model, the rounds behind it that need nobody, and the checkpoint.

Where a round forgot is looked at only after its model is out, while devices work on the next one: the report waits,
the devices do not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from time import monotonic

from coordinator import checkpoint
from edgefl import forgetting
from edgefl import job as jobs
from edgefl.algorithms.base import Update
from edgefl.errors import StoreError
from edgefl.events import Round
from edgefl.job import Course, Job
from edgefl.system.disk import FolderDisk

RETRY = 1.0  # seconds between two attempts to write to a full disk


@dataclass(frozen=True, slots=True)
class Merged:
    """The next model is made and on disk."""

    course: Course
    reports: tuple[Round, ...]
    first: Course  # after the round that devices took part in, before those that needed nobody


@dataclass(frozen=True, slots=True)
class Looked:
    """The reports that had to wait until somebody had looked at every device's model."""

    reports: tuple[Round, ...]


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
    since: float  # when the round before it was merged, or the coordinator began to wait for its first
    waited: float  # seconds of that until the round was opened

    def work(
        self, folder: Path | None, stopping: Event, put: Callable[[Merged | Looked | Stuck | Broken], None]
    ) -> None:
        """Merge, save, and say so; then look where the round forgot, if the run asks for it."""
        try:
            merged = self.merge()
            saved = checkpoint.Saved(merged.course, merged.reports, *self.total)
            if folder is not None and not _save(folder, self.job, saved, stopping, put):
                return
            if not self.job.run.run.forgetting:
                put(merged)
                return
            put(replace(merged, reports=()))
            put(Looked(self.look(merged, stopping)))
        except Exception as error:  # noqa: BLE001 - handed to the coordinator's loop, which raises it
            put(Broken(error))

    def merge(self) -> Merged:
        """The round, then those behind it that need no device."""
        job, course, first = self.job, self.course, None
        reports: list[Round] = []
        updates, late, spent, since, waited = self.updates, self.late, self.spent, self.since, self.waited
        while True:
            course = jobs.advance(job, course, updates, population=self.population, late=late)
            first = first or course
            traffic = {"bytes_up": spent[0], "bytes_down": spent[1]}
            time = {"seconds": monotonic() - since, "waiting_seconds": waited}
            reports.append(jobs.report(course, updates, **traffic, **time))
            if jobs.finished(job, course) or jobs.plan(job, course) is not None:
                return Merged(course, tuple(reports), first)
            updates, late, spent, since, waited = {}, {}, (0, 0), monotonic(), 0.0

    def look(self, merged: Merged, stopping: Event) -> tuple[Round, ...]:
        """The reports, with where the round forgot; as they are, when somebody wants an end first."""
        local = []
        for accuracy in forgetting.local_accuracies(self.job, self.course, self.updates):
            local.append(accuracy)
            if stopping.is_set():
                return merged.reports
        found = forgetting.shares(self.course, local, merged.first)
        return replace(merged.reports[0], **found), *merged.reports[1:]


def _save(folder: Path, job: Job, saved: checkpoint.Saved, stopping: Event, put: Callable[[Stuck], None]) -> bool:
    """Write the checkpoint, however long the disk stays full; False when somebody wants an end first."""
    while True:
        try:
            checkpoint.save(FolderDisk(folder), job, saved)
        except StoreError as error:  # noqa: PERF203 - the loop is there for the error
            put(Stuck(str(error)))
            if stopping.wait(RETRY):
                return False
        else:
            return True
