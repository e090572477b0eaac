"""A start of the coordinator: what it reads of the run that it goes on with."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator.decide.rounds import DeviceAnswered, DeviceJoined, RoundMerged, Rounds, step
from coordinator.durable.journal import AnswerFrame, Journal
from coordinator.durable.starting_point import rules
from coordinator.shell.threaded import Threaded
from edgefl.base import events
from edgefl.base.errors import Interrupted
from edgefl.cli.app import app
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.system.disk import FolderDisk
from edgefl.system.record_log import Bodies, PlacedRecord, RecordLog


@pytest.mark.parametrize(("done", "flags"), [("", []), ("yes", []), ("yes", ["--unless-finished"])])
def test_a_start_reads_each_file_of_the_journal_once(
    done: str, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f"[run]\nfolder = '{tmp_path}'\nname = 'night'\nrounds = 300\n[rounds]\ncohort = 1\n"
        "[page]\nport = 0\n[broker]\nurl = 'mqtt://localhost:1'\n"
    )
    disk = FolderDisk(tmp_path / "night")
    _played(disk, load(RunFile, file, ()), done)
    reads, read_on = Counter[str](), RecordLog.read_on

    def counted(self: RecordLog, bodies: Bodies = "all") -> Iterator[PlacedRecord]:
        reads[self.name] += 1
        return read_on(self, bodies)

    def stopped(self: Threaded) -> None:
        self.shell.close()
        raise Interrupted("stopped")

    monkeypatch.setattr(RecordLog, "read_on", counted)
    monkeypatch.setattr(Threaded, "run", stopped)
    result = CliRunner().invoke(app, ["coordinator", "start", str(file), "--json", *flags])
    code = getattr(result.exception, "exit_code", result.exit_code)
    assert code == (0 if flags else 3 if done else Interrupted.exit_code), result.exception
    files = disk.names("journal*")
    assert len(files) > 4, "segments, and the archive of those that are gone"
    assert reads == dict.fromkeys(files, 1)


def _played(disk: FolderDisk, run: RunFile, done: str) -> None:
    """A run that was interrupted after two hundred rounds."""
    book, state = Journal(disk), Rounds(rules(run))
    book.set(run=run.model_dump_json(), run_id="1f2e", done=done)
    state, _ = step(state, DeviceJoined("a", 0))
    book.write((DeviceJoined("a", 0),), state, facts=(events.Joined("a", at=1.0),))
    for round in range(1, 201):
        for event in (DeviceAnswered("a", round, 0), RoundMerged(round, 0)):
            state, _ = step(state, event)
            closes = isinstance(event, DeviceAnswered)
            answer = AnswerFrame(round, "a", bytes(32), bytes(100)) if closes else None
            book.write(
                (event,), state, answer, 1 if closes else None, (events.Answered("a", round, 9),) if closes else ()
            )
