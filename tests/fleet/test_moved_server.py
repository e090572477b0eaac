"""A server is copied while it works, and goes on in another home: its devices come back without a visit."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_fleet_service import Machine, online

from edgefl.fleet.audit import AuditLog, verify

pytestmark = [pytest.mark.mosquitto, pytest.mark.broker, pytest.mark.night]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "old")
    yield made
    made.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


def has_rounds(machine: Machine, run: str) -> bool:
    return re.search(r"\bround[ =]\d", machine("run", "logs", run)) is not None


def test_devices_come_back_and_runs_go_on_in_another_home(machine: Machine, tmp_path: Path) -> None:
    """As move-server.md has it. A run that went on after the copy says so in its log; one that was paused goes on."""
    server = machine.start("server", "start")
    machine.devices()
    machine.waits_for(lambda: online(machine))
    machine.submit("first", 2)
    machine.waits_for(lambda: machine.run("first")["phase"] == "finished")
    machine("fleet", "add", "d3")
    machine("backup", "key", "key")
    machine.submit("paused", 600)
    machine.waits_for(lambda: has_rounds(machine, "paused"))
    machine("run", "pause", "paused")
    machine.waits_for(lambda: machine.run("paused")["phase"] == "paused")
    machine.submit("second", 100_000)
    machine.waits_for(lambda: machine.run("second")["phase"] == "working")
    machine.waits_for(lambda: has_rounds(machine, "second"))
    printed = machine("backup", "out.tar", "--for", "key.pub")
    assert "wrote out.tar" in printed
    machine("fleet", "revoke", "d3")
    server.terminate()
    server.wait(60)

    old = machine.environment
    new = tmp_path / "new"
    new.mkdir()
    machine.home, machine.environment = new, {**old, "HOME": str(new), "XDG_STATE_HOME": str(new / "state")}
    copy = str(tmp_path / "old" / "out.tar")
    assert "members of" not in machine("restore", copy, "--key", str(tmp_path / "old" / "key.pub"), code=2)
    told = machine("restore", copy, "--key", str(tmp_path / "old" / "key"), "--revoked", "d3")
    assert "revoked again: d3 of default" in told
    (tmp_path / "old" / "state").rename(tmp_path / "old" / "gone")  # nothing of the old machine is read
    assert re.search(r"d3 +\S+ +- +\S+ \S+ UTC", machine("fleet", "list"))
    machine.start("server", "start")
    machine.waits_for(lambda: online(machine))
    assert "whole" in machine("server", "audit", "--verify")
    assert machine.run("first")["phase"] == "finished"
    machine.waits_for(lambda: "is older than round" in machine("run", "logs", "second"))
    machine("run", "resume", "paused")
    machine.waits_for(lambda: machine.run("paused")["phase"] == "finished", 300.0)
    machine("run", "cancel", "second")
    machine.waits_for(lambda: machine.run("second")["phase"] == "cancelled")
    machine.submit("third", 2)
    machine.waits_for(lambda: machine.run("third")["phase"] == "finished")
    folder = new / "state" / "edgefl" / "server"
    assert (folder / "runs" / "third").is_dir()
    book = AuditLog.opened(folder)
    assert verify(book.disk, book.signer.key) == ""
    told_by = [(entry.what, entry.subject) for entry in book.entries()]
    assert ("run is finished", "first") in told_by
    assert ("restore", "out.tar") in told_by
    assert ("run is finished", "paused") in told_by
    assert ("run is finished", "third") in told_by
