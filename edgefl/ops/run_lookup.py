"""Where `edgefl status` and `edgefl report` find a run: by its page while it has one, else by its folder."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coordinator.durable.run_history import run_disk
from coordinator.shell import known_runs
from coordinator.shell.known_runs import KnownRun
from edgefl.base.errors import EdgeflError, RunError
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.ops.sources import FolderSource, PageSource, RunSource
from edgefl.watch.overview.rows import Snapshot
from edgefl.watch.overview.snapshot import plain

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunLookup:
    """A run as it was found; `process` is the coordinator that is at work on it, where we can know."""

    where: str
    source: RunSource
    snapshot: Snapshot
    folder: Path | None = None  # None: on another machine
    process: int | None = None

    @property
    def going_on(self) -> bool:
        """Return whether a coordinator is at work on it."""
        ended = self.snapshot.run.state in ("finished", "interrupted")
        return not ended and (self.folder is None or self.process is not None)

    @property
    def state(self) -> str:
        """In a word or two."""
        run = self.snapshot.run
        if run.state != "finished" and not self.going_on:
            return "interrupted"
        return "paused" if run.paused else "broker away" if run.broker_away else run.state

    def as_json(self) -> dict[str, Any]:
        """Everything, as one object: the overview, and where it is from."""
        folder = None if self.folder is None else str(self.folder)
        about = {"where": self.where, "folder": folder, "process": self.process, "status": self.state}
        return {**about, **plain(self.snapshot)}


def every_run(most: int | None) -> list[RunLookup]:
    """The runs on this machine: those that go on, then the last ones that do not."""
    runs = known_runs.known()
    active = [run for run in runs if run.process is not None]
    each = (_readable(run) for run in [*active, *(run for run in runs if run not in active)][:most])
    return [looked for looked in each if looked is not None]


def _readable(run: KnownRun) -> RunLookup | None:
    """A run that cannot be read does not hide the others."""
    try:
        return _local(run)
    except EdgeflError as error:
        log.warning("a run cannot be read why=%s", error)
        return None


def find(word: str, token_file: Path | None = None, authority: Path | None = None) -> RunLookup:
    """Find a run by its name, its folder, its run file or the address of its page."""
    if word.startswith(("http://", "https://")):
        source = PageSource(word, token_file, authority)
        return RunLookup(source.url, source, source.snapshot())
    return _local(known_run(word))


def known_run(word: str) -> KnownRun:
    """Find a run on this machine by its name, its folder or its run file."""
    if word.endswith(".toml") and Path(word).is_file():
        settings = load(RunFile, Path(word)).run
        return known_runs.find(str(settings.folder / settings.name))
    return known_runs.find(word)


def look_again(looked: RunLookup) -> RunLookup:
    """The same run, now."""
    if looked.folder is None:
        return replace(looked, snapshot=looked.source.snapshot())
    run = known_runs.find(str(looked.folder))
    try:
        return replace(looked, snapshot=looked.source.snapshot(), process=run.process)
    except RunError:  # a page goes with its run; what is left is the folder
        return _local(run)


def _local(run: KnownRun) -> RunLookup:
    process, source = run.process, None
    if process is not None and run.page is not None:
        try:
            source = PageSource(run.page, run.token_file, run.authority)
            return RunLookup(run.page, source, source.snapshot(), run.folder, process)
        except EdgeflError:  # it has just ended, or is not for us: the folder is
            pass
    folder = FolderSource(run_disk(run.folder))
    return RunLookup(str(run.folder), folder, folder.snapshot(), run.folder, process)
