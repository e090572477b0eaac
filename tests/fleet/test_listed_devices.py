"""A run file that lists its devices and their keys: these take part, and others are told why not."""

import threading
from pathlib import Path
from typing import Any

from fleets import Fleet, loop, run_file, until

from coordinator.shell.threaded import Threaded
from device_agent.durable import identity
from edgefl.base.errors import Interrupted
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.system.disk import FolderDisk
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker

NAMES = jobs.device_names(4)


def listed(folder: Path, **instead: str) -> RunFile:
    """A run of four devices, with the key that each of them has, or another."""
    keys = {name: identity.signer(FolderDisk(folder / name)).key for name in NAMES} | instead
    devices = {name: key for name, key in keys.items() if key}
    return run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 4, "quorum": 4}, devices=devices)


def test_devices_with_their_keys_make_the_same_model(tmp_path: Path) -> None:
    run, told = listed(tmp_path), list[dict[str, Any]]()
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    fleet.start_all()
    assert fleet.coordinator(told.append).run().sha256() == loop(run).sha256()
    fleet.join()
    assert not [event for event in told if event["event"] == "refused"]


def refused(tmp_path: Path, run: RunFile, name: str) -> tuple[dict[str, Any], list[str]]:
    """A whole fleet comes, of which one is turned away: what is told of it, and what the device says about it."""
    told: list[dict[str, Any]] = []
    fleet = Fleet(run, tmp_path, InMemoryBroker().client, once=False)
    coordinator: Threaded = fleet.coordinator(told.append)

    def happened(event: str) -> dict[str, dict[str, Any]]:
        return {one["device"]: one for one in list(told) if one["event"] == event}

    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(_interrupted(coordinator)), daemon=True)
    thread.start()
    fleet.start_all()
    until(lambda: set(happened("joined")) | set(happened("refused")) == set(NAMES))
    until(lambda: fleet.agents[name].complaints)
    complaints = list(fleet.agents[name].complaints)
    coordinator.stop()
    thread.join(60)
    fleet.stop()
    fleet.join()
    assert outcome == [True], "four are needed, and there are three"
    assert set(happened("joined")) == set(NAMES) - {name}
    assert set(happened("refused")) == {name}
    return happened("refused")[name], complaints


def _interrupted(coordinator: Threaded) -> bool:
    try:
        coordinator.run()
    except Interrupted:
        return True
    return False


def test_a_device_with_another_key_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    own = identity.signer(FolderDisk(tmp_path / "device-02")).key
    fact, (complaint, *_) = refused(tmp_path, listed(tmp_path, **{"device-02": Signer.new().key}), "device-02")
    why = f"the name 'device-02' belongs to another key than {own}: if it is the right one, set devices.device-02"
    assert fact["code"] == "device.key"
    assert fact["reason"].startswith(why)
    assert "device.key" in complaint
    assert why in complaint


def test_a_device_that_is_not_listed_is_refused_and_told_its_key(tmp_path: Path) -> None:
    own = identity.signer(FolderDisk(tmp_path / "device-03")).key
    fact, (complaint, *_) = refused(tmp_path, listed(tmp_path, **{"device-03": ""}), "device-03")
    assert (fact["code"], fact["barred"]) == ("device.not_in_run", True)
    for reason in (fact["reason"], complaint):
        assert reason.startswith("not in this run: [devices] of its run file names 3")
        assert f'add device-03 = "{own}" there' in reason
        assert "belongs to another key" not in reason
