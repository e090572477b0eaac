"""Rounds that wait for nobody, over a transport: interrupted, extended, and the model that its record makes."""

from pathlib import Path
from typing import Any

import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file

from coordinator.durable.existing_run import extend, settle
from coordinator.durable.journal import Journal
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError, Interrupted, RunError
from edgefl.base.events import Closed, Done
from edgefl.cli.replay import trained_again
from edgefl.job.config.schema import RunFile
from edgefl.system.disk import FolderDisk
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from tools.in_memory_broker import InMemoryBroker

IMPATIENT = {"cohort": None, "quorum": None, "mode": "buffered", "concurrency": 3, "buffer": 2, "deadline": 5.0}


def impatient(folder: Path, **more: Any) -> RunFile:
    about = {"name": "run", "rounds": 4, "folder": str(folder)} | more.pop("run", {})
    return run_file({"name": "fedavg"}, rounds=IMPATIENT, run=about, **more)


def coordinate(connect: Any, run: RunFile, folder: Path, stop_after: int | None = None) -> list[dict[str, Any]]:
    """One life of its coordinator, which somebody ends at an answer of this round."""
    told: list[dict[str, Any]] = []

    def tell(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "answered" and event["round"] == stop_after:
            coordinator.stop()

    coordinator = Threaded(run, connect("coordinator"), lambda: prepared(run)[0], folder=folder, tell=in_json(tell))
    coordinator.run()
    return told


def test_a_run_that_was_interrupted_and_extended_has_the_model_of_its_record(tmp_path: Path):
    broker, folder = InMemoryBroker(), tmp_path / "run"
    run = impatient(tmp_path, evaluation={"on": "devices"})
    fleet = Fleet(run, tmp_path / "devices", broker.client, once=False)
    fleet.start_all()
    with pytest.raises(Interrupted):
        coordinate(broker.client, settle(folder, run), folder, stop_after=2)
    broker.kill("device-01")
    told = coordinate(broker.client, settle(folder, run), folder)
    assert [event["round"] for event in told if event["event"] == "round"][-1] == 4
    told = coordinate(broker.client, extend(folder, run, 2), folder)
    fleet.stop()
    assert told[-1]["rounds"] == 6
    story = list(Journal(FolderDisk(folder), reading=True).story())
    assert {fact.round for fact in story if isinstance(fact, Closed)} == set(range(1, 8)), "and the last evaluation"
    assert "the same model" in trained_again(folder, None, prepared)


@pytest.mark.broker
def test_over_mqtt_too_and_another_model_than_the_record_makes_would_be_seen(
    mosquitto: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, run = tmp_path / "run", impatient(tmp_path)

    def connect(client: str) -> MqttTransport:
        return MqttTransport(mosquitto.address, client)

    fleet = Fleet(run, tmp_path / "devices", connect)
    fleet.start_all()
    told = coordinate(connect, settle(folder, run), folder)
    fleet.join()
    assert told[-1]["model_sha256"] in trained_again(folder, None, prepared)
    story = [*Journal(FolderDisk(folder), reading=True).story(), Done("run", "fedavg", 4, model_sha256="0" * 64)]
    monkeypatch.setattr(Journal, "story", lambda _: iter(story))
    with pytest.raises(RunError, match="the model is"):
        trained_again(folder, None, prepared)


@pytest.mark.parametrize(
    ("rounds", "task", "says"),
    [
        ({}, {}, "rounds that wait need no order"),
        (IMPATIENT, {"partition": None}, "its devices brought their own data"),
        (IMPATIENT, {}, "has not finished"),
    ],
)
def test_what_cannot_be_trained_again_is_said(rounds: Any, task: Any, says: str, tmp_path: Path):
    run = run_file({"name": "fedavg"}, run={"name": "run", "folder": str(tmp_path)}, rounds=rounds, task=task)
    Journal(FolderDisk(tmp_path / "run")).set(run=run.model_dump_json())
    with pytest.raises(ConfigError, match=says):
        trained_again(tmp_path / "run", None, prepared)
