"""The same run file and seed give the same model, bit for bit, however the fleet is driven."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, loop, prepared, run_file

from coordinator.durable import answer_store
from edgefl.job.run.job import device_names
from edgefl.learn.algorithms.registry import algorithm_registry
from edgefl.learn.selection.registry import SELECTIONS
from edgefl.sim.emulator import emulate
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.transport import Transport
from tools.in_memory_broker import InMemoryBroker

NEEDS_TORCH = {"moon", "fedmlb"}  # they ask the back-end for features and blocks
BY_SPEED = {"fastest", "deadline"}  # they ask whom real devices' own speed tells them to
PART = {"private": ["*.bias"]}  # of a network of one layer, none of which is a norm
SETTINGS: dict[str, dict[str, Any]] = {"moon": {}, "fedmlb": {}, "fedper": PART, "fedrep": PART, "fedbn": PART}


def the_run(name: str, **more: Any) -> Any:
    if name in NEEDS_TORCH:
        more["task"] = {**more.get("task", {}), "backend": "torch", "model": "mlp"}
    return run_file({"name": name, **SETTINGS.get(name, {})}, **more)


def over(connect: Callable[[str], Transport], run: Any, folder: Path) -> str:
    fleet = Fleet(run, folder, connect)
    fleet.start_all()
    run_state = fleet.coordinator(folder=folder / "coordinator").run()
    fleet.join()
    assert all(code == 0 for code, _ in fleet.exits.values()), fleet.exits
    return run_state.sha256()


@pytest.fixture
def merged_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the answers of a large cohort are: none stays in memory."""
    monkeypatch.setattr(answer_store, "HELD", 0)


@pytest.mark.usefixtures("merged_from_the_journal")
@pytest.mark.parametrize("name", sorted(algorithm_registry()))
def test_every_algorithm_gives_the_same_model_in_the_loop_and_over_a_transport(name: str, tmp_path: Path) -> None:
    run = the_run(name)
    broker = InMemoryBroker()
    assert over(broker.client, run, tmp_path) == loop(run).sha256()


@pytest.mark.usefixtures("merged_from_the_journal")
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedgc", "upcycled"])
@pytest.mark.parametrize("up", [{"codec": "int8"}, {"codec": "topk", "share": 0.1}], ids=["int8", "topk"])
def test_few_bytes_give_the_same_model_in_every_driver(name: str, up: dict[str, Any], tmp_path: Path) -> None:
    run = the_run(name, wire={"up": up, "down": {"codec": "int8"}})
    job, held = prepared(run)
    devices = dict(zip(device_names(len(held.devices)), held.devices, strict=True))
    assert over(InMemoryBroker().client, run, tmp_path) == loop(run).sha256() == emulate(job, devices).sha256()


@pytest.mark.parametrize("name", ["fresh", "power_of_choice", "oort"])
def test_another_selection_gives_the_same_model_in_every_driver(name: str, tmp_path: Path) -> None:
    run = the_run("fedavg", selection={"name": name}, rounds={"cohort": 2}, run={"rounds": 6})
    job, held = prepared(run)
    devices = dict(zip(device_names(len(held.devices)), held.devices, strict=True))
    assert over(InMemoryBroker().client, run, tmp_path) == loop(run).sha256() == emulate(job, devices).sha256()


def test_optimiser_schedule_and_augmentation_give_the_same_model_in_every_driver(tmp_path: Path) -> None:
    rates = {"name": "cosine", "rounds": 4, "warmup": 1}
    adam = {"name": "fedprox", "lr": 0.02, "optimiser": "adam", "lr_schedule": rates}
    run = run_file(adam, task={"augment": ["noise=0.1", "scale"]})
    job, held = prepared(run)
    devices = dict(zip(device_names(len(held.devices)), held.devices, strict=True))
    assert over(InMemoryBroker().client, run, tmp_path) == loop(run).sha256() == emulate(job, devices).sha256()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answers_may_arrive_in_any_order(seed: int, tmp_path: Path) -> None:
    run = the_run("fedprox", wire={"codec": "float16"})
    broker = InMemoryBroker(order=random.Random(seed).randrange)
    stop = threading.Event()

    def pump() -> None:
        while not stop.wait(0.002):
            broker.pump()

    pumping = threading.Thread(target=pump, daemon=True)
    pumping.start()
    try:
        assert over(broker.client, run, tmp_path) == loop(run).sha256()
    finally:
        stop.set()
        pumping.join()


@pytest.mark.parametrize("name", sorted(algorithm_registry()))
def test_mosquitto_changes_nothing(name: str, mosquitto: Broker, tmp_path: Path) -> None:
    run = the_run(name)
    assert over(lambda client: MqttTransport(mosquitto.address, client), run, tmp_path) == loop(run).sha256()


@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_nor_does_it_with_another_selection(name: str, mosquitto: Broker, tmp_path: Path) -> None:
    run = the_run("fedavg", selection={"name": name}, rounds={"cohort": 2})
    sha256 = over(lambda client: MqttTransport(mosquitto.address, client), run, tmp_path)
    assert name in BY_SPEED or sha256 == loop(run).sha256()


@pytest.mark.parametrize("name", ["fedgc", "scaffold"])
def test_nor_does_the_broker_from_a_wheel(name: str, iotcore_broker: Broker, tmp_path: Path) -> None:
    run = the_run(name, wire={"codec": "float16", "compress": True})
    assert over(lambda client: MqttTransport(iotcore_broker.address, client), run, tmp_path) == loop(run).sha256()


def test_devices_with_torch_train_the_same_model_as_a_loop_with_torch(tmp_path: Path) -> None:
    run = the_run("fedavg", task={"backend": "torch"})
    broker = InMemoryBroker()
    assert over(broker.client, run, tmp_path) == loop(run).sha256()
