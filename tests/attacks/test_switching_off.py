"""Nobody can switch a fleet off with a message: agents log it, wait, and serve whoever comes next."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho
import pytest
from fleets import Fleet, loop, run_file, until
from paho.mqtt.enums import CallbackAPIVersion

from device_agent.shell.service import Agent
from edgefl.learn.data.dataset import Dataset
from edgefl.wire import chunks, topics
from edgefl.wire.broker import Broker
from edgefl.wire.messages import JobState, Refusal, frame
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionLost, Transport
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"rounds": 2})
DEVICE = "device-00"
STRANGER = Speaker(Signer.new(), "default", 1)  # agents that trust nobody yet hear it


def attacker(broker: InMemoryBroker, name: str = "attacker") -> Transport:
    client = broker.client(name)
    client.start(lambda _: None)
    return client


def foreign_state(client: Transport) -> None:
    for version in (99, 99, 99):
        state = JobState(protocol=version, job="fleet", run_id="r", phase="gathering", round=1)
        message = STRANGER.seal("state", state.model_dump_json().encode(), job="fleet", run_id="r")
        client.publish(topics.state("default", "fleet"), message, retain=True)


def refuse(client: Transport) -> None:
    refusal = frame(Refusal(code="protocol.version", reason="this fleet is closed"))
    for part in chunks.split(refusal, chunks.digest(refusal)):
        for number in range(4):
            name = f"device-0{number}"
            sealed = STRANGER.seal("down", part, job="fleet", run_id="r", device=name)
            client.publish(topics.down("default", "fleet", name), sealed)


def refusals(client: Transport) -> None:
    for _ in range(3):
        refuse(client)


@pytest.mark.parametrize(
    ("attack", "words"),
    [(foreign_state, f"speaks protocol 99, this agent {topics.PROTOCOL}"), (refusals, "this fleet is closed")],
    ids=["foreign protocol", "refusal"],
)
def test_agents_outlive_the_message_say_it_once_and_serve_the_next_run(
    attack: Callable[[Transport], None], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = InMemoryBroker()
    fleet = Fleet(RUN, tmp_path, broker.client)
    fleet.start_all()
    until(lambda: len(broker.retained) == 4)
    attack(attacker(broker))
    until(lambda: all(any(words in line for line in agent.complaints) for agent in fleet.agents.values()))
    run_state = fleet.coordinator().run()
    fleet.join()
    assert {code for code, _ in fleet.exits.values()} == {0}
    assert run_state.sha256() == loop(RUN).sha256()
    assert sum(words in line for line in caplog.messages) == 4, "once for each agent"


def test_a_run_whose_model_does_not_fit_the_data_is_declined_and_the_next_one_served(tmp_path: Path) -> None:
    """A manifest decides which shape is wrong: a message must not end the agent by it."""
    broker = InMemoryBroker()
    everybody = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 4, "quorum": 4})
    fleet = Fleet(everybody, tmp_path, broker.client, once=False)
    wrong = run_file({"name": "fedavg"}, run={"name": "wrong", "rounds": 1}, rounds={"cohort": 4, "quorum": 1})
    misfit = Dataset(np.zeros((5, 3), np.float32), np.zeros(5, np.int64), 10)
    good = fleet.data[DEVICE]
    for name in fleet.data:
        fleet.start(fleet.agent(name, misfit if name == DEVICE else None))
    signer = Signer.new()
    fleet.coordinator(run=wrong, signer=signer).run()
    agent = fleet.agents[DEVICE]
    assert any("shape [3]" in line for line in agent.complaints)
    agent.samples.data = good
    run_state = fleet.coordinator(signer=signer).run()
    assert fleet.exits == {}
    assert run_state.sha256() == loop(everybody).sha256()
    fleet.stop()
    fleet.join()


def test_a_session_that_is_taken_over_comes_back(mosquitto: Broker, tmp_path: Path) -> None:
    fleet = Fleet(RUN, tmp_path, lambda name: MqttTransport(mosquitto.address, f"{name}-known"))
    fleet.start_all()
    agent = fleet.agents[DEVICE]
    until(lambda: agent.session.online)
    thief = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{DEVICE}-known", protocol=paho.MQTTv5)
    thief.connect(mosquitto.address.host, mosquitto.address.port)
    thief.loop_start()
    until(lambda: not agent.session.online)
    thief.disconnect()
    thief.loop_stop()
    assert fleet.coordinator().run().sha256() == loop(RUN).sha256()
    fleet.join()
    assert fleet.exits[DEVICE][0] == 0


def test_only_a_stop_of_its_own_operator_ends_an_agent(tmp_path: Path) -> None:
    broker = InMemoryBroker()
    host = Fleet(RUN, tmp_path, broker.client, once=False).agent(DEVICE)
    agent: Agent = host.agent
    ends: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: ends.append(host.run()), daemon=True)
    thread.start()
    until(lambda: agent.session.online)
    foreign_state(attacker(broker))
    refuse(attacker(broker, "another"))
    host.events.put(ConnectionLost("Session taken over", taken_over=True))  # not every broker says so
    until(lambda: len(agent.complaints) == 3)
    assert ends == []
    host.stop()
    thread.join(60)
    assert ends == [(0, "stopped")]
