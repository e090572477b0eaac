"""A device that is gone is not waited for: the rounds behind it take as long as if it had never been there."""

from pathlib import Path
from typing import Any

from facts import in_json
from fleets import Fleet, prepared, run_file

from coordinator.durable.run_history import lines
from coordinator.shell.threaded import Threaded
from edgefl.system.disk import FolderDisk
from tools.in_memory_broker import InMemoryBroker


def test_with_one_of_three_gone_no_deadline_passes(tmp_path: Path):
    run = run_file(
        {"name": "fedavg"},
        task={"partition": {"kind": "dirichlet", "omega": 0.5, "devices": 3}},
        rounds={"cohort": 3, "quorum": 2, "deadline": 3600.0},
    )
    broker = InMemoryBroker()
    fleet = Fleet(run, tmp_path, broker.client)
    told: list[dict[str, Any]] = []

    def tell(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "round" and event["round"] == 1:
            broker.kill("device-02")

    folder = tmp_path / "run"
    coordinator = Threaded(
        run, broker.client("coordinator"), lambda: prepared(run)[0], folder=folder, tell=in_json(tell)
    )
    for name in fleet.data:
        fleet.start(fleet.agent(name))
    coordinator.run()
    fleet.hosts["device-02"].stop()
    fleet.join()
    rounds = [event for event in told if event["event"] == "round"]
    first, second, *others = (event["devices"] for event in rounds)
    assert (first, others) == (3, [2, 2])
    assert second in {2, 3}, "it may have answered the second round, which is asked for before the first is told"
    # Each is the number of a timer: one for each round, and none ran out.
    assert coordinator.shell.state.rounds.attempt == 4
    assert all(0 <= event["waiting_seconds"] <= event["seconds"] for event in rounds)
    story = [line.split("  ", 1)[1] for line in lines(FolderDisk(folder))]
    assert "device-02 is disconnected" in story
    assert not any("is up" in line for line in story)
    in_vain = [line for line in story if line.endswith("without device-02")]
    assert len(in_vain) <= 1, "who is known to be gone is not asked again"
    if second == 2:
        assert in_vain == ["round 2 is closed with the answers of device-00, device-01, without device-02"]
