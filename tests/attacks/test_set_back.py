"""Disks that were set back to an earlier state, by a thief or by an operator with a backup: who is believed then.

A device whose disk is old is heard all the same; a coordinator whose folder is old is told by its devices that it has
forgotten rounds. Neither keeps a fleet waiting without a word.
"""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, run_file, until

from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker

VICTIM = "device-00"
RUN = run_file({"name": "fedavg"}, rounds={"cohort": 4, "quorum": 4}, run={"rounds": 6})


def test_a_device_whose_disk_is_set_back_is_heard_by_a_coordinator_that_knew_it_later(tmp_path: Path) -> None:
    """Its lives are counted by the clock: counted by the disk alone, this one would be an old one that came again."""
    fleet = Fleet(RUN, tmp_path / "fleet", InMemoryBroker().client)
    told = list[dict[str, Any]]()
    coordinator = fleet.coordinator(tell=told.append)
    running = threading.Thread(target=coordinator.run, daemon=True)
    running.start()
    home, copy = tmp_path / "fleet" / VICTIM, tmp_path / "copy"

    def live(times: int) -> int:
        host = fleet.agent(VICTIM)
        thread = fleet.start(host)
        until(lambda: len([event for event in told if event["event"] == "joined"]) == times)
        host.stop()
        thread.join(60)
        return host.agent.birth.number

    live(1)
    shutil.copytree(home, copy)
    last = live(2)
    shutil.rmtree(home)
    shutil.copytree(copy, home)
    until(lambda: time.time() > last + 1)
    fleet.start_all()
    fleet.join()
    running.join(60)
    rounds = [event["devices"] for event in told if event["event"] == "round"]
    assert rounds == [4] * 6, "it counted in all of them"
    assert not [event for event in told if event["event"] == "refused"]


def test_a_coordinator_whose_folder_is_set_back_hears_why_nobody_trains(tmp_path: Path) -> None:
    broker, signer = InMemoryBroker(), Signer.new()
    fleet = Fleet(RUN, tmp_path / "fleet", broker.client, once=False)
    fleet.start_all()
    folder, copy = tmp_path / "run", tmp_path / "copy"

    def until_it_says(name: str, **about: object) -> dict[str, Any]:
        """The event that ends this life of the coordinator."""
        match = list[dict[str, Any]]()

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == name and about.items() <= event.items():
                match.append(event)
                life.stop()

        life: Threaded = fleet.coordinator(tell=tell, signer=signer, folder=folder)
        with pytest.raises(Interrupted):
            life.run()
        return match[0]

    until_it_says("round", round=1)
    shutil.copytree(folder, copy)
    until_it_says("round", round=4)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    ended = time.time()
    until(lambda: time.time() > ended + 2)  # lives are counted in seconds
    reason = until_it_says("declined")["reason"]
    fleet.stop()
    fleet.join()
    assert (
        "which this device has already worked on: if the run's folder was restored from a copy, go on under another"
        in reason
    )
