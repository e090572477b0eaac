"""Adapters on a frozen base travel alone, in every driver; the base comes to a device once, with the graphs."""

from pathlib import Path
from typing import Any

import pytest
from fleets import prepared, run_file
from test_same_facts import Connect, emulated, looped, served

from edgefl.base.events import Fact, Round
from edgefl.job.config.schema import RunFile
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.transport import Message
from tools.in_memory_broker import InMemoryBroker

LESS = 100  # times fewer bytes than the model has
NETWORK = """
from torch import nn

from edgefl.learn.models.lora import lora


def wide(shape, classes):
    base = nn.Sequential(nn.Linear(shape[0], 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, classes))
    return lora(base, rank=1, alpha=1.0, layers="[24]")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFile:
    (tmp_path / "adapted_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    task = {"model": "adapted_network:wide", "partition": {"kind": "iid", "devices": 2}}
    return run_file({"name": "fedavg", "batches": 2}, run={"rounds": 3}, task=task, rounds={"cohort": 2})


class Counted:
    """A broker that counts what its clients hear of models and graphs."""

    def __init__(self, connect: Connect) -> None:
        self.connect, self.heard = connect, dict[str, dict[str, int]]()

    def client(self, name: str) -> Any:
        transport = self.connect(name)
        start, bytes_of = transport.start, self.heard.setdefault(name, {})

        def listening(deliver: Any, will: Any = None) -> None:
            def hear(event: Any) -> None:
                if isinstance(event, Message):
                    bytes_of[event.topic] = bytes_of.get(event.topic, 0) + len(event.payload)
                deliver(event)

            start(hear, will)

        transport.start = listening
        return transport


def each_way(told: list[Fact]) -> list[tuple[int, int]]:
    """Bytes up and down of each round, for one device."""
    return [
        (fact.bytes_up // fact.devices, fact.bytes_down // fact.devices) for fact in told if isinstance(fact, Round)
    ]


def whole(run: RunFile) -> int:
    """The bytes of the network with its base."""
    job, _ = prepared(run)
    return sum(array.nbytes for array in job.model.tensors(job.start).values())


def test_adapters_give_the_same_model_over_mosquitto(run: RunFile, mosquitto: Broker, tmp_path: Path) -> None:
    sha256, told = served(run, tmp_path, lambda client: MqttTransport(mosquitto.address, client))
    assert sha256 == looped(run)[0]
    assert all(LESS * bytes < whole(run) for way in each_way(told) for bytes in way)


def test_what_travels_in_a_round_is_a_hundredth_of_the_model_in_every_driver(run: RunFile, tmp_path: Path) -> None:
    broker = Counted(InMemoryBroker().client)
    runs = looped(run), emulated(run), served(run, tmp_path, broker.client)
    assert len({sha256 for sha256, _ in runs}) == 1
    for _, told in runs:
        assert len(each_way(told)) == 3
        assert all(LESS * bytes < whole(run) for way in each_way(told) for bytes in way)
    for name, topics in broker.heard.items():
        if name.startswith("device"):
            assert 0.8 * whole(run) < sum(topics.values()) < 1.1 * whole(run), "the base came, compressed, and once"
