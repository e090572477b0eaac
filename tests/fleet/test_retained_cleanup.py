"""Whatever a coordinator left at the broker when it was killed is gone when the job has finished."""

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, prepared, run_file

from coordinator.shell.publisher import Publisher
from coordinator.shell.retained_cleanup import RetainedCleanup
from edgefl.base.vector import Vector
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.wire import chunks, topics
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionMade, Message, Transport, TransportEvent
from tools.in_memory_broker import InMemoryBroker, InMemoryClient

RUN = run_file({"name": "fedavg"})
LIMIT = 1 << 24


class Killed(BaseException):
    """The process is no more."""


class Doomed(InMemoryClient):
    """A transport whose process is killed after so many messages."""

    left = 0

    def publish(self, topic: str, payload: bytes | memoryview, *, retain: bool = False, **more: Any) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().publish(topic, payload, retain=retain, **more)


def packed(job: Job, round: int, params: Vector) -> bytes:
    return jobs.broadcast(job, round, params, {})


def live(broker: InMemoryBroker, left: int) -> bool:
    """A coordinator that publishes three models and clears them; whether it came to its end."""
    job, _ = prepared(RUN)
    transport = Doomed(broker, uuid.uuid4().hex)
    transport.left = left
    transport.start(lambda _: None)
    try:
        publisher = Publisher(transport, "default", job, run_id="a-life", signer=Signer.new())
        for round in (1, 2, 3):
            publisher.publish(round, packed(job, round, job.start + round))
        publisher.clear()
    except Killed:
        return False
    return True


def sweep(transport: Transport, job: str) -> None:
    """What the next coordinator does."""
    retained_cleanup = RetainedCleanup(transport, "default", job, LIMIT)

    def deliver(event: TransportEvent) -> None:
        if isinstance(event, Message):
            retained_cleanup.hear(event)

    transport.start(deliver)
    retained_cleanup.search()
    transport.publish(topics.state("default", job), b"{}", retain=True)
    assert retained_cleanup.searched
    retained_cleanup.clear(())


def test_wherever_a_coordinator_is_killed_the_next_one_finds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 400)
    monkeypatch.setattr(chunks, "TOGETHER", (1,))
    left, unclean = 0, 0
    broker = InMemoryBroker()
    while not live(broker, left):
        unclean += len(broker.retained) > 0
        sweep(broker.client("next"), "fleet")
        assert set(broker.retained) == {topics.state("default", "fleet")}, f"killed after {left} messages"
        broker, left = InMemoryBroker(), left + 1
    assert unclean == left - 1 > 10, "every kill but the first left something behind"


def test_a_sweep_that_is_killed_is_taken_up_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 100)
    monkeypatch.setattr(chunks, "TOGETHER", (1,))
    left = 0
    while True:
        broker = InMemoryBroker()
        live(broker, 4)
        assert not any(topic.endswith("manifest") for topic in broker.retained), "cut short: chunks, and no manifest"
        doomed = Doomed(broker, "doomed")
        doomed.left = left
        try:
            sweep(doomed, "fleet")
        except Killed:
            left += 1
            sweep(broker.client("next"), "fleet")
            assert set(broker.retained) == {topics.state("default", "fleet")}, f"killed after {left} messages"
        else:
            break
    assert left > 6, "the state, and the chunks that came and that did not come"


def test_models_of_other_jobs_and_what_is_in_use_are_left_alone() -> None:
    broker, job = InMemoryBroker(), prepared(RUN)[0]
    earlier, now = broker.client("earlier"), broker.client("now")
    earlier.start(lambda _: None)
    publisher = Publisher(earlier, "default", job, run_id="a-life", signer=Signer.new())
    publisher.publish(1, packed(job, 1, job.start))
    earlier.publish(topics.manifest("default", "other", "m"), b"{}", retain=True)
    retained_cleanup = RetainedCleanup(now, "default", "fleet", LIMIT)
    now.start(lambda event: retained_cleanup.hear(event) if isinstance(event, Message) else None)
    retained_cleanup.search()
    before = dict(broker.retained)
    retained_cleanup.clear([publication.id for publication in publisher.all()])
    assert broker.retained == before


def test_a_manifest_that_lies_about_its_size_costs_one_message() -> None:
    broker = InMemoryBroker()
    liar = broker.client("liar")
    liar.start(lambda _: None)
    for payload in (b'{"size": 1e18}', b"\xff"):
        liar.publish(topics.manifest("default", "fleet", "m"), payload, retain=True)
        sweep(tidy := broker.client("tidy"), "fleet")
        assert tidy.sent <= 4
        assert set(broker.retained) == {topics.state("default", "fleet")}


def standing(broker: Broker) -> set[str]:
    """Every topic of the job at which the broker keeps something."""
    occupied: set[str] = set()
    ended = threading.Event()
    transport = MqttTransport(broker.address, "auditor")

    def deliver(event: TransportEvent) -> None:
        if isinstance(event, ConnectionMade):
            transport.subscribe("edgefl/v1/default/fleet/#", "audit")
            transport.publish("audit", b"said after the subscription")
        if isinstance(event, Message) and event.topic == "audit":
            ended.set()
        elif isinstance(event, Message) and event.payload:
            occupied.add(event.topic)

    transport.start(deliver)
    assert ended.wait(30)
    transport.close()
    return occupied


def test_nothing_but_the_state_of_a_finished_job_stands_at_a_real_broker(broker: Broker, tmp_path: Path) -> None:
    run = run_file({"name": "fedavg"}, run={"rounds": 2})
    job, _ = prepared(run)
    killed = MqttTransport(broker.address, "killed")
    online = threading.Event()
    killed.start(lambda event: online.set() if isinstance(event, ConnectionMade) else None)
    assert online.wait(30)
    publisher = Publisher(killed, "default", job, run_id="a-life", signer=Signer.new())
    publisher.publish(7, packed(job, 7, job.start + 1))
    assert killed.flush(30)
    assert len(standing(broker)) >= 4, "graphs and a model, each with its manifest"
    killed.close()
    fleet = Fleet(run, tmp_path, lambda name: MqttTransport(broker.address, name))
    fleet.start_all()
    fleet.coordinator().run()
    fleet.join()
    assert standing(broker) == {topics.state("default", "fleet")}
