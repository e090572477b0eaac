"""What a run and its devices leave on disk is for their owner alone, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleets import Fleet, prepared, run_file

from coordinator.durable.existing_run import settle
from coordinator.shell.threaded import Threaded
from edgefl.base.events import Fact
from edgefl.job.run import local_fleet as processes
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.system.store import make_private, write_atomically
from edgefl.watch.metrics_file import METRICS, MetricsFile
from tools.in_memory_broker import InMemoryBroker


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Everything below a folder that somebody else could read."""
    paths = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in paths if _loose(path)}


def _loose(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a checkpoint has its name by now, which is looked at too
        return False
    return mode & 0o777 != (0o700 if stat.S_ISDIR(mode) else 0o600)


def test_a_whole_run_leaves_nothing_that_others_can_read(tmp_path: Path) -> None:
    run = run_file({"name": "scaffold"}, run={"folder": str(tmp_path / "runs")})
    folder, broker = tmp_path / "runs" / "fleet", InMemoryBroker()
    seen: set[str] = set()

    with own(folder.with_name(".fleet")):
        settle(folder, run, fresh=False)
        metrics = MetricsFile(FolderDisk(folder))

        def tell(fact: Fact) -> None:
            metrics(fact)
            seen.update(path.name for path in folder.iterdir())
            assert modes(tmp_path / "runs") == {}

        fleet = Fleet(run, tmp_path / "agents", broker.client)
        coordinator = Threaded(run, broker.client("coordinator"), lambda: prepared(run)[0], folder=folder, tell=tell)
        fleet.start_all()
        coordinator.run()
        fleet.join()
    assert {"journal.log", "journal-000001.log", METRICS} <= seen
    assert modes(tmp_path / "runs") == {}
    assert modes(tmp_path / "agents") == {}
    assert list(tmp_path.glob("agents/*/update.spool")), "nothing was spooled"


def test_what_an_older_version_left_open_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "runs" / "old"
    folder.mkdir(parents=True, mode=0o755)
    for name in ("journal.log", "journal-000001.log", "checkpoint-000001.safetensors"):
        (folder / name).touch(mode=0o644)
    with caplog.at_level("INFO"):
        make_private(folder)
    assert modes(folder) == {}
    assert f"closed folder={folder} files=4" in caplog.text


def test_files_of_a_fleet_on_this_machine_are_private_too(tmp_path: Path) -> None:
    command = ["true"]
    with processes.LocalFleet(tmp_path / "agents", {"device-00": command}) as fleet:
        fleet.wait()
    assert modes(tmp_path / "agents") == {}


def test_what_is_meant_for_others_is_as_the_umask_says(tmp_path: Path) -> None:
    write_atomically(tmp_path / "out" / "model.onnx", b"x", private=False)
    assert (tmp_path / "out" / "model.onnx").stat().st_mode & 0o777 == 0o666
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777
