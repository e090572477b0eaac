"""An agent that was started for a run ends with that run, and a device's name stays its own."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fleets import Fleet, loop, run_file, until

from coordinator.shell.outbox import FINISHED_EXPIRES, CoordinatorOutbox
from device_agent.start import AgentHost
from edgefl.job.run.local_fleet import agents_folder
from edgefl.wire import signed, topics
from edgefl.wire.broker import Broker
from edgefl.wire.messages import JobState, Presence, read_json
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionMade, Message, Transport, TransportEvent
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"name": "mine", "rounds": 2})
OTHER = run_file({"name": "fedavg"}, run={"name": "other", "rounds": 1})
DEVICE = "device-00"


def say(client: Transport, job: str, run: str, phase: str) -> None:
    state = JobState(job=job, run_id=run, phase=phase, round=1)
    message = Speaker(Signer.new(), "default", 1).seal("state", state.model_dump_json().encode(), job=job, run_id=run)
    client.publish(topics.state("default", job), message, retain=True)


def test_what_finished_before_ends_nobody(tmp_path: Path) -> None:
    """Runs of long ago are retained as finished, and one that was interrupted as gathering."""
    broker = InMemoryBroker()
    past = broker.client("past")
    past.start(lambda _: None)
    say(past, "a-interrupted", "r0", "gathering")
    say(past, "b-old", "r1", "finished")
    say(past, "mine", "r2", "finished")
    fleet = Fleet(RUN, tmp_path, broker.client)
    fleet.start_all()
    assert fleet.coordinator().run().sha256() == loop(RUN).sha256()
    fleet.join()
    assert {reason for _, reason in fleet.exits.values()} == {"job 'mine' has finished"}


def test_an_agent_of_one_run_serves_others_and_ends_with_its_own(tmp_path: Path) -> None:
    broker, signer = InMemoryBroker(), Signer.new()
    fleet = Fleet(RUN, tmp_path, broker.client)
    for name in fleet.data:
        host = fleet.agent(name)
        host.agent.session = replace(host.agent.session, only="mine")
        fleet.start(host)
    fleet.coordinator(run=OTHER, signer=signer).run()
    assert fleet.exits == {}
    fleet.coordinator(signer=signer).run()
    fleet.join()
    assert {reason for _, reason in fleet.exits.values()} == {"job 'mine' has finished"}


def test_agents_of_a_fleet_live_where_no_run_moves_them() -> None:
    run = run_file({"name": "fedavg"}, broker={"url": "mqtt://localhost"})
    assert not agents_folder(run).is_relative_to(run.run.folder / run.run.name)


# ---- what a finished run leaves ------------------------------------------------------------------------------------


def test_that_a_run_has_finished_is_forgotten_after_a_day() -> None:
    now = 0.0
    broker = InMemoryBroker(clock=lambda: now)
    speaker = broker.client("coordinator")
    speaker.start(lambda _: None)
    CoordinatorOutbox(speaker, "default", "done", "r", signer=Signer.new()).state("finished", 3, 1)
    CoordinatorOutbox(speaker, "default", "going", "r", signer=Signer.new()).state("training", 3, 1)

    def standing() -> set[str]:
        heard: set[str] = set()
        client = broker.client("late")
        client.start(lambda event: heard.add(event.topic) if isinstance(event, Message) else None)
        client.subscribe(topics.state("default", "+"))
        client.close()
        return {topics.parts(topic)[0] for topic in heard}

    assert standing() == {"done", "going"}
    now = FINISHED_EXPIRES + 1.0
    assert standing() == {"going"}


def test_brokers_forget_what_expires(broker: Broker) -> None:
    def heard_by(client: MqttTransport) -> list[str]:
        heard: list[str] = []

        def deliver(event: TransportEvent) -> None:
            if isinstance(event, ConnectionMade):
                client.subscribe("kept/+")
            elif isinstance(event, Message):
                heard.append(event.topic)

        client.start(deliver)
        return heard

    speaker = MqttTransport(broker.address, "speaker")
    speaker.start(lambda _: None)
    speaker.publish("kept/short", b"x", retain=True, expires=1)
    speaker.publish("kept/long", b"x", retain=True, expires=3600)
    speaker.publish("kept/ever", b"x", retain=True)
    assert speaker.flush(30)
    time.sleep(2.5)  # nothing but time makes a broker forget
    late = MqttTransport(broker.address, "late")
    heard = heard_by(late)
    until(lambda: len(heard) >= 2)
    assert set(heard) == {"kept/long", "kept/ever"}
    late.close()
    speaker.close()


# ---- two devices with one id ---------------------------------------------------------------------------------------


def presence(broker: InMemoryBroker) -> Presence:
    return read_json(Presence, signed.opened(broker.retained[topics.presence("default", DEVICE)].payload).payload)


def serve(host: AgentHost) -> threading.Thread:
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("leave", ["goodbye", "power cut"])
def test_a_twin_that_came_and_left_while_no_coordinator_ran_leaves_no_trace(leave: str, tmp_path: Path) -> None:
    broker = InMemoryBroker()
    fleet = Fleet(RUN, tmp_path, broker.client)
    fleet.start_all()
    until(lambda: len(broker.retained) == 4)
    healthy = fleet.agents[DEVICE]
    twin = fleet.agent(DEVICE, client="twin")
    thread = serve(twin)
    until(lambda: any("calls itself" in line for line in healthy.complaints))
    if leave == "goodbye":
        twin.stop()
        thread.join(60)
    else:
        broker.kill("twin")
    until(lambda: presence(broker).installation == healthy.birth.installation and presence(broker).online)
    assert fleet.coordinator().run().sha256() == loop(RUN).sha256()
    fleet.join()
    twin.stop()
    thread.join(60)


def test_two_with_one_id_do_not_announce_themselves_against_each_other_for_ever(tmp_path: Path) -> None:
    broker = InMemoryBroker()
    presences: list[bytes] = []
    listener = broker.client("listener")
    listener.start(lambda event: presences.append(event.payload) if isinstance(event, Message) else None)
    listener.subscribe(topics.presence("default", DEVICE))
    fleet = Fleet(RUN, tmp_path, broker.client, once=False)
    hosts = [fleet.agent(DEVICE), fleet.agent(DEVICE, client="twin")]
    threads = [serve(host) for host in hosts]
    until(lambda: all(any("calls itself" in line for line in host.agent.complaints) for host in hosts))
    assert len(presences) < 20  # each waits ever longer
    for host, thread in zip(hosts, threads, strict=True):
        host.stop()
        thread.join(60)
