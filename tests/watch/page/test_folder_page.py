"""A run from its folder: what is written there later is seen, and another run in its place is another story."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from visitors import Stream, Visitor

from coordinator.durable.journal import Journal
from coordinator.shell.known_runs import lock_of
from edgefl.base import events
from edgefl.job.config.page import Page
from edgefl.ops import folder_page
from edgefl.ops.folder_page import FolderPage
from edgefl.ops.sources import FolderSource
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsFile
from edgefl.watch.page import stream


class Run:
    """A folder that somebody else's coordinator writes."""

    def __init__(self, folder: Path) -> None:
        disk = FolderDisk(folder)
        self.journal, self.metrics = Journal(disk), MetricsFile(disk)

    def tell(self, *facts: events.Fact) -> None:
        self.journal.note(*facts)
        for fact in facts:
            self.metrics(fact)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Run(tmp_path / "run").tell(events.Joined("pi-01", at=1.0), events.Round(1, scores={"accuracy": 0.5}, at=2.0))
    return tmp_path / "run"


@pytest.fixture
def page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    monkeypatch.setattr(folder_page, "EVERY", 0.02)
    monkeypatch.setattr(stream, "PACE", 0.0)
    shown = FolderPage(Page(port=0), FolderDisk(folder))
    visitor = Visitor(shown.server)
    yield visitor
    visitor.close()
    shown.close()


def test_what_is_written_later_is_told_and_nothing_else(page: Visitor, folder: Path) -> None:
    watching = Stream(page.ask("/events"))
    assert len(watching.next()["rounds"]) == 1  # type: ignore[arg-type]
    Run(folder).tell(events.Round(2, scores={"accuracy": 0.75}, at=3.0))
    change = watching.next()
    assert change["whole"] is False
    assert [(row["round"], row["accuracy"]) for row in change["rounds"]] == [(2, 0.75)]  # type: ignore[attr-defined]
    assert change["devices"] == []


def test_another_run_in_its_place_is_told_from_the_beginning(page: Visitor, folder: Path) -> None:
    watching = Stream(page.ask("/events"))
    watching.next()
    other = folder.with_name("other")
    Run(other).tell(*(events.Joined(f"pi-1{i}", at=9.0 + i) for i in range(3)))
    shutil.rmtree(folder)
    other.rename(folder)
    others = ["pi-10", "pi-11", "pi-12"]
    change = watching.next()
    while [row["name"] for row in change["devices"]] != others:  # type: ignore[attr-defined]
        change = watching.next()  # a look may have found the old run half deleted
    assert (change["whole"], change["rounds"]) == (True, [])


class CountingDisk(FolderDisk):
    """A folder that counts what is read of it."""

    bytes_read = 0

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        data = super().read(name, start, size)
        self.bytes_read += len(data or b"")
        return data


def test_only_what_is_new_is_read_by_page_and_status(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_page, "EVERY", 0.02)
    run, size = Run(folder), 1_000_000
    run.tell(*(events.Joined("pi-01", host="h" * 1000, at=1.0) for _ in range(size // 1000)))
    disks = CountingDisk(folder), CountingDisk(folder)
    shown, source = FolderPage(Page(port=0), disks[0]), FolderSource(disks[1])
    try:
        source.snapshot()
        assert all(disk.bytes_read > size for disk in disks), "all of it once"
        for disk in disks:
            disk.bytes_read = 0
        for number in range(2, 12):
            run.tell(events.Round(number, scores={"accuracy": 0.5}, at=3.0 + number))
            assert source.snapshot().rounds[-1].round == number
            while shown.feed.look(lambda seen: max(seen.rounds)) != number:
                threading.Event().wait(0.01)
        assert all(disk.bytes_read < size / 10 for disk in disks), [disk.bytes_read for disk in disks]
    finally:
        shown.close()


def test_a_folder_that_is_moved_away_leaves_what_is_shown(
    page: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, written = threading.Semaphore(0), folder_page._written
    monkeypatch.setattr(folder_page, "_written", lambda there: (written(there), looks.release())[0])
    shutil.rmtree(folder)
    for _ in range(3):  # the first may have begun before the folder was gone
        assert looks.acquire(timeout=60)
    assert len(page.json("/api/overview")["rounds"]) == 1  # type: ignore[arg-type]


AT_WORK = """
import sys, time
from pathlib import Path
from edgefl.system.locks import own
with own(Path(sys.argv[1])):
    print("at work", flush=True)
    time.sleep(600)
"""


def test_a_run_without_its_coordinator_is_shown_as_interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_page, "EVERY", 0.02)
    Run(folder).tell(events.Asked(2, 1, ("pi-01",), 9, at=3.0))
    lives = [_coordinator(folder)]
    shown = FolderPage(Page(port=0), FolderDisk(folder))
    try:
        assert _shown(shown) == ("running", ["asked"], 2)
        for life in lives:
            life.kill()
            life.wait()
            _until(shown, "interrupted")
            assert _shown(shown) == ("interrupted", ["offline"], None)
            if len(lives) == 1:
                lives.append(_coordinator(folder))
                _until(shown, "waiting")
        Run(folder).tell(events.Done("run", "fedavg", 2, at=9.0))
        _until(shown, "finished")
    finally:
        shown.close()
        lives[-1].kill()
        lives[-1].wait()


def _coordinator(folder: Path) -> subprocess.Popen[bytes]:
    """A process that owns the run."""
    process = subprocess.Popen([sys.executable, "-c", AT_WORK, lock_of(folder)], stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout as said:
        said.readline()
    return process


def _shown(page: FolderPage) -> tuple[str, list[str], int | None]:
    """The run's state, its devices', and the round in hand."""
    return page.feed.look(
        lambda seen: (
            seen.run.state,
            [row.state for row in seen.devices.values()],
            seen.open.round if seen.open else None,
        )
    )


def _until(page: FolderPage, state: str) -> None:
    while _shown(page)[0] != state:
        threading.Event().wait(0.01)
