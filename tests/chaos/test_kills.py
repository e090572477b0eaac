"""Real processes and a real broker, killed for good: the run ends with the same model, and every promise is kept."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from entrypoints import Setting
from fleet import Fleet
from proxy import Proxy

from coordinator.durable import checkpoint
from edgefl.system.disk import FolderDisk

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

KILL_AT = {
    "while devices join": "1 after joined",
    "at the first answer": "1 after asked 1",
    "at a later answer": "1 after answered 2",
    "before a checkpoint's state": "1 after closed 1",
    "before its model": "2 after closed 1",
    "before the journal has it": "3 after closed 1",
    "before the metrics": "1 after round 1",
    "before a segment of the journal goes": "3 after closed 4",
    "right after": "4 after closed 4",
    "at the very end": "1 after done",
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as fleet:
        yield fleet


@pytest.mark.night
@pytest.mark.parametrize("when", KILL_AT.values(), ids=KILL_AT.keys())
def test_a_coordinator_killed_at_a_write_goes_on_and_ends_with_the_same_model(when: str, fleet: Fleet) -> None:
    fleet.all_agents()
    life = fleet.coordinator(f"kill:{when}")
    assert life.finished() is None, "it should have been killed"
    fleet.check(fleet.until_done(fleet.coordinator()), f"kill:{when}")


@pytest.mark.night
@pytest.mark.parametrize("when", ["1 after asked 2", "1 after closed 2", "1 after closed 3", "2 after closed 3"])
def test_models_that_were_never_saved_are_made_again_from_the_journal(when: str, fleet: Fleet) -> None:
    fleet.places["coordinator"] = Setting(in_passing=True)
    fleet.all_agents()
    life = fleet.coordinator(f"kill:{when}")
    assert life.finished() is None, "it should have been killed"
    saved = checkpoint.generations(FolderDisk(fleet.folder / "runs" / "chaos"))
    fleet.check(fleet.until_done(fleet.coordinator()), f"kill:{when}, models not saved")
    assert set(saved) <= {"checkpoint-000001.safetensors"}


@pytest.mark.parametrize("when", ["1 after asked 1", "1 after answered 1", "2 after closed 1"])
def test_sealed_answers_outlive_a_coordinator_that_is_killed(when: str, tmp_path: Path) -> None:
    """It reads them again from its journal, with the key in its file."""
    with Fleet(tmp_path, wire={"seal": True}) as fleet:
        fleet.all_agents()
        life = fleet.coordinator(f"kill:{when}")
        assert life.finished() is None, "it should have been killed"
        fleet.check(fleet.until_done(fleet.coordinator()), f"kill:{when}")


@pytest.mark.parametrize("fault", ["kill:5"])
def test_a_sealed_answer_outlives_an_agent_that_is_killed(fault: str, tmp_path: Path) -> None:
    """Its spool has it sealed, or it is trained and sealed again."""
    with Fleet(tmp_path, wire={"seal": True}) as fleet:
        life = fleet.coordinator()
        first, *others = fleet.names
        for name in others:
            fleet.agent(name)
        fleet.agent(first, fault)
        fleet.agents[first].join(60)
        assert fleet.agents[first].exitcode == -signal.SIGKILL
        fleet.agent(first)
        fleet.check(fleet.until_done(life), fault)


def test_a_coordinator_on_a_full_disk_waits_and_goes_on_by_itself(fleet: Fleet) -> None:
    fleet.all_agents()
    life = fleet.coordinator("full:1 after asked 1")
    ended = life.finished()
    assert ended is not None
    assert life.find(event="paused") is not None
    fleet.check(ended, "full:1 after asked 1")


@pytest.mark.night
@pytest.mark.parametrize("fault", ["kill:2", "kill:4", "kill:5", "full:3", "full:4", "full:5"])
def test_an_agent_that_dies_or_has_no_disk_at_a_write_loses_nothing(fault: str, fleet: Fleet) -> None:
    life = fleet.coordinator()
    first, *others = fleet.names
    for name in others:
        fleet.agent(name)
    fleet.agent(first, fault)
    if fault.startswith("kill"):
        fleet.agents[first].join(60)
        assert fleet.agents[first].exitcode == -signal.SIGKILL
        fleet.agent(first)
    fleet.check(fleet.until_done(life), fault)


def test_a_broker_killed_in_a_round_is_replaced_by_one_that_knows_nothing(fleet: Fleet) -> None:
    life = fleet.coordinator()
    fleet.all_agents()
    life.wait_for(event="round", round=1)
    fleet.kill_broker()
    fleet.check(fleet.until_done(life), "broker killed")


def test_everything_killed_at_once_goes_on(fleet: Fleet) -> None:
    life = fleet.coordinator()
    fleet.all_agents()
    life.wait_for(event="round", round=2)
    life.end()
    for name in fleet.names:
        fleet.kill_agent(name)
    fleet.kill_broker()
    fleet.all_agents()
    fleet.check(fleet.until_done(fleet.coordinator()), "everything killed")


def test_a_coordinator_that_is_stopped_for_a_while_only_loses_time(fleet: Fleet) -> None:
    life = fleet.coordinator()
    fleet.all_agents()
    life.wait_for(event="asked", round=1)
    os.kill(life.process.pid or 0, signal.SIGSTOP)
    fleet.kill_agent(fleet.names[0])
    fleet.agent(fleet.names[0])
    os.kill(life.process.pid or 0, signal.SIGCONT)
    fleet.check(fleet.until_done(life), "stopped")


def test_a_damaged_newest_checkpoint_is_passed_over_and_its_round_merged_again(fleet: Fleet) -> None:
    fleet.all_agents()
    assert fleet.coordinator("kill:1 after asked 3").finished() is None
    folder = fleet.folder / "runs" / "chaos"
    newest = folder / checkpoint.generations(FolderDisk(folder))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    fleet.check(fleet.until_done(fleet.coordinator()), "damaged checkpoint")
    log = (fleet.folder / "coordinator.log").read_text()
    assert "passed over a checkpoint" in log
    assert "merging again" in log


def test_a_really_full_disk_pauses_the_run_until_there_is_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(small)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("needs root and mount for a small file system")
    try:
        with Fleet(tmp_path, run={"folder": str(small)}) as fleet:
            life = fleet.coordinator()
            first, *others = fleet.names
            for name in others:
                fleet.agent(name)
            fleet.agent(first, "kill:5")  # in mid-round: nothing goes on until it is back
            fleet.agents[first].join(60)
            ballast = small / "ballast"
            with pytest.raises(OSError, match="No space"):
                _fill(ballast)
            fleet.agent(first)
            assert life.wait_for(event="paused") is not None
            ballast.unlink()
            ended = fleet.until_done(life)
            shutil.copytree(small / "chaos", tmp_path / "runs" / "chaos")
            fleet.check(ended, "full disk")
            rounds = (small / "chaos" / "metrics.jsonl").read_text().splitlines()
            assert len(rounds) == 5, "a round is missing from the metrics, or is there twice"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(bytes(65536)):
            pass


@pytest.mark.parametrize("byte", [300, 4_500])
def test_a_connection_cut_at_a_byte_costs_a_reconnection(byte: int, fleet: Fleet) -> None:
    with Proxy(fleet.broker.address.port) as proxy:
        proxy.weather.cut_at = [byte]
        life = fleet.coordinator()
        first, *others = fleet.names
        for name in others:
            fleet.agent(name)
        fleet.agent(first, port=proxy.port)
        ended = fleet.until_done(life)
        fleet.kill_agent(first)
    assert proxy.weather.cuts == 1, "the connection was never cut"
    fleet.check(ended, f"cut at byte {byte}")


def test_a_slow_and_far_device_is_waited_for(fleet: Fleet) -> None:
    with Proxy(fleet.broker.address.port) as proxy:
        proxy.weather.latency, proxy.weather.rate = 0.05, 200_000.0
        life = fleet.coordinator()
        first, *others = fleet.names
        for name in others:
            fleet.agent(name)
        fleet.agent(first, port=proxy.port)
        ended = fleet.until_done(life)
        fleet.kill_agent(first)
    fleet.check(ended, "slow device")
