"""A run that is resumed under other settings goes on under them."""

from pathlib import Path
from typing import Any

import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file

from coordinator.durable.existing_run import settle
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.job.config.schema import RunFile
from tools.in_memory_broker import InMemoryBroker


def test_rounds_codec_and_quorum_may_change_in_the_middle_of_a_run(tmp_path: Path):
    broker, folder = InMemoryBroker(), tmp_path / "run"
    first = run_file({"name": "fedavg"}, rounds={"cohort": 4, "quorum": 4, "deadline": 3600.0}, run={"rounds": 50})
    fleet = Fleet(first, tmp_path, broker.client)
    fleet.start_all()
    told: list[dict[str, Any]] = []

    def coordinate(run: RunFile, number: int) -> None:
        settle(folder, run, fresh=False)

        def tell(event: dict[str, Any]) -> None:
            told.append(event)
            if number == 1 and event["event"] == "asked" and event["round"] == 3:
                coordinator.stop()

        client = broker.client(f"coordinator-{number}")
        coordinator = Threaded(run, client, lambda: prepared(run)[0], folder=folder, tell=in_json(tell))
        coordinator.run()

    with pytest.raises(Interrupted):
        coordinate(first, 1)
    broker.kill("device-03")
    second = run_file(
        {"name": "fedavg"},
        rounds={"cohort": 4, "quorum": 3, "deadline": 7200.0},
        run={"rounds": 5},
        wire={"codec": "float16"},
    )
    coordinate(second, 2)
    fleet.hosts["device-03"].stop()
    fleet.join()
    rounds = {event["round"]: event for event in told if event["event"] == "round"}
    assert list(rounds)[-3:] == [3, 4, 5]
    assert told[-1]["rounds"] == 5
    assert rounds[5]["devices"] == 3
    assert rounds[5]["bytes_up"] < 0.7 * rounds[2]["bytes_up"], "three devices with two bytes a weight, not four"
