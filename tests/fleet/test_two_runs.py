"""Two runs on one fleet at once: each device serves both in turn, and each run ends with the model it has alone."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, loop, run_file

from device_agent.durable.spool import Spool, SpooledUpdate, Spools
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport
from tools.in_memory_broker import InMemoryBroker


def a_run(name: str, algorithm: str) -> RunFile:
    return run_file(
        {"name": algorithm, "epochs": 3},
        run={"name": name, "rounds": 6},
        task={"partition": {"kind": "dirichlet", "omega": 0.5, "devices": 3}},
        rounds={"cohort": 3, "quorum": 3, "deadline": 3600.0},
    )


@pytest.fixture(params=["in memory", "mosquitto"])
def connect(request: pytest.FixtureRequest) -> Callable[[str], Transport]:
    if request.param == "in memory":
        return InMemoryBroker().client
    address = request.getfixturevalue("mosquitto").address
    return lambda name: MqttTransport(address, name)


def test_both_runs_finish_with_the_models_they_have_alone_and_no_deadline_passes(
    connect: Callable[[str], Transport], tmp_path: Path
):
    runs = [a_run("first", "scaffold"), a_run("second", "fedavg")]
    signer = Signer.new()
    fleet = Fleet(runs[0], tmp_path, connect, once=False)
    fleet.start_all()
    told: dict[str, list[dict[str, Any]]] = {"first": [], "second": []}
    ends: dict[str, RunState] = {}
    meeting = threading.Barrier(2, timeout=60)

    def teller(name: str) -> Callable[[dict[str, Any]], None]:
        def tell(event: dict[str, Any]) -> None:
            told[name].append(event)
            if event["event"] == "asked" and event["round"] == 1:
                meeting.wait()  # both ask in the same moment

        return tell

    coordinators = {run.run.name: fleet.coordinator(teller(run.run.name), run, signer) for run in runs}

    def coordinate(name: str) -> None:
        ends[name] = coordinators[name].run()

    threads = [threading.Thread(target=coordinate, args=(name,), daemon=True) for name in coordinators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for run in runs:
        name = run.run.name
        assert ends[name].sha256() == loop(run).sha256()
        assert coordinators[name].shell.state.rounds.attempt == 6, "one timer for each round, and none ran out"
        assert not [event for event in told[name] if event["event"] in ("declined", "abandoned", "refused")]
    assert [event for events in told.values() for event in events if event["event"] == "busy"], "they met"
    fleet.stop()
    fleet.join()
    assert {code for code, _ in fleet.exits.values()} == {0}


def test_an_update_for_a_coordinator_that_is_away_holds_no_other_run_up_and_is_kept(tmp_path: Path):
    broker, run = InMemoryBroker(), a_run("second", "fedavg")
    frame = b"trained last night"
    held = SpooledUpdate("away", "away.life", 3, "1", "m3", frame, chunks.digest(frame), {})
    (tmp_path / "device-00").mkdir()
    Spool(FolderDisk(tmp_path / "device-00")).put(held)
    fleet = Fleet(run, tmp_path, broker.client)
    fleet.start_all()
    assert fleet.coordinator().run().sha256() == loop(run).sha256()
    fleet.join()
    assert Spools(FolderDisk(tmp_path / "device-00"), 4).take() == {"away.life": held}
