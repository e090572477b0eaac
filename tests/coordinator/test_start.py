"""A start of the coordinator: what it reads of the run that it goes on with."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from coordinator.decide.rounds import Joined, Rounds, step
from coordinator.durable.journal import Journal
from coordinator.durable.starting_point import rules
from coordinator.shell.threaded import Threaded
from coordinator.start import coordinate
from edgefl.base import events
from edgefl.base.errors import Interrupted
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import make_network
from edgefl.system.disk import FolderDisk
from edgefl.system.record_log import Bodies, Placed, RecordLog
from edgefl.watch.view import choose


def test_a_start_reads_the_journal_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"run": {"folder": str(tmp_path)}, "rounds": {"cohort": 1}, "page": {"port": 0}}
    run = parse(RunFile, table, "test", environment={})
    folder = tmp_path / run.run.name
    book, joined = Journal(FolderDisk(folder)), Joined("a", 0)
    book.set(run=run.model_dump_json(), run_id="1f2e")
    book.write((joined,), step(Rounds(rules(run)), joined)[0], facts=(events.Joined("a", at=1.0),))
    reads, read = Counter[str](), RecordLog.read

    def counted(self: RecordLog, bodies: Bodies = "all") -> Iterator[Placed]:
        reads[self.name] += 1
        return read(self, bodies)

    def stopped(self: Threaded) -> None:
        self.shell.close()
        raise Interrupted("stopped")

    monkeypatch.setattr(RecordLog, "read", counted)
    monkeypatch.setattr(Threaded, "run", stopped)
    with pytest.raises(Interrupted):
        coordinate(run, None, choose(as_json=True), network=partial(make_network, run))
    assert reads["journal-000001.log"] == 1
