"""A member that is sent away while it takes part: it is not asked, not heard and not waited for any more."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet as Agents
from fleets import prepared, run_file, until

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from device_agent.durable import identity
from edgefl.base.errors import Interrupted
from edgefl.base.events import as_json
from edgefl.fleet import authority
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.members import MembersFile
from edgefl.job.run import job as jobs
from edgefl.system.disk import FolderDisk
from tools.in_memory_broker import InMemoryBroker

NAMES = jobs.device_names(4)
RUN = run_file({"name": "fedavg"}, run={"rounds": 100_000}, rounds={"cohort": 4, "quorum": 3})


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    """A fleet of four, each with the key that its agent has."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet = FleetAdministration.new("default", ["localhost"], 8883, authority.clock())
    for name in NAMES:
        key = identity.signer(FolderDisk(tmp_path / name)).key
        with fleet.folder.changing():
            fleet.admit(name, authority.new_key().public_key(), key, authority.clock())
    return fleet


def test_a_revoked_device_is_out_of_the_run_although_its_connection_is_open(
    members: FleetAdministration, tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []
    broker = InMemoryBroker()
    agents = Agents(RUN, tmp_path, broker.client, once=False)
    keys = DeviceKeys(members=MembersFile(members.folder.members))
    coordinator = Threaded(
        RUN,
        broker.client("coordinator"),
        lambda: prepared(RUN)[0],
        tell=lambda fact: told.append(as_json(fact)),
        security=Security(device_keys=keys),
    )

    def run() -> None:
        with suppress(Interrupted):  # it has all its rounds before it
            coordinator.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    agents.start_all()

    def happened(event: str) -> list[dict[str, Any]]:
        return [one for one in list(told) if one["event"] == event]

    def merged() -> int:
        return max((one["round"] for one in happened("round")), default=0)

    until(lambda: merged() >= 2)
    members.revoke("device-01", authority.clock())
    until(lambda: [one for one in happened("lost") if one["device"] == "device-01"])
    since = merged()
    until(lambda: merged() >= since + 5 or not thread.is_alive())
    later = [one for one in happened("asked") if one["round"] > since + 1]
    assert later
    assert not [one for one in later if "device-01" in one["devices"]]
    assert not [one for one in happened("answered") if one["device"] == "device-01" and one["round"] > since + 1]
    until(lambda: any("device.revoked" in one or "device.key" in one for one in agents.agents["device-01"].complaints))
    agents.stop()
    agents.join()
    coordinator.stop()
    thread.join(60)
