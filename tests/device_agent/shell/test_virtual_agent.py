"""A real agent in virtual time: it trains at its pace, comes back from its own disk, and always does the same."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from tiny import Tiny, clouds

from device_agent.decide import vocabulary
from device_agent.durable.broker_addresses import BrokerAddresses
from device_agent.shell.data_watch import DataChecked
from device_agent.shell.samples import Samples
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Hooks, Limits, Scope, TrainingSetup
from device_agent.shell.training import WorkDone
from edgefl.job.run.work import ModelRef, Worker, WorkResult, pack_broadcast
from edgefl.learn.contract import Task
from edgefl.sim.network import VirtualBroker
from edgefl.sim.world import Process, World
from edgefl.system.hardware.line import Line
from edgefl.wire import chunks, signed, signing, topics
from edgefl.wire.address import parse
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import (
    TO_COORDINATOR,
    Addresses,
    Answer,
    Assignment,
    Enclosed,
    Holding,
    Manifest,
    Missing,
    Receipt,
    Shape,
    frame,
    peek,
)
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionMade, Message
from tools.failing_disk import FailingDisk, PowerCut

PACE, BATCHES = 0.5, 6
SIGNER = Signer.new()
MODEL = pack_broadcast("job", 1, np.zeros(4, np.float32), {}, Float32())
DIGEST = chunks.digest(MODEL).hex()
ID = DIGEST[:16]


class Asks:
    """A coordinator that publishes one model and asks for one answer; it takes the first that comes whole."""

    def __init__(self, world: World, broker: VirtualBroker, **budget: Any) -> None:
        self.world, self.budget = world, budget
        self.client = broker.client("coordinator", Line())
        self.assembler, self.speaker = chunks.Assembler(1 << 20), Speaker(SIGNER, "default", 1)
        self.answers: list[tuple[float, Answer, bytes]] = []
        self.client.start(self.hear)

    def hear(self, event: Any) -> None:
        match event:
            case ConnectionMade():
                self.client.subscribe(topics.up("default", "job", "+"), topics.presence("default", "+"))
                self.publish()
            case Message(topic, payload) if "/presence/" in topic:
                if json.loads(signed.opened(payload).payload)["online"] and not self.answers:
                    self.say(Assignment(job="job", run_id="r", round=1, attempt=1, model=ID, **self.budget))
            case Message(topic, payload) if topic.endswith("/up") and (whole := self.assembled(payload)):
                message = peek(TO_COORDINATOR, whole[1])[0]
                if isinstance(message, Answer):
                    self.answers.append((self.world.now, message, bytes(whole[1])))
                    self.say(Receipt(job="job", round=1, digest=whole[0], verdict="accepted"))
                elif isinstance(message, Holding):
                    self.offered(message)

    def assembled(self, payload: bytes) -> tuple[bytes, bytes | bytearray] | None:
        return self.assembler.add(signed.opened(payload).payload)

    def offered(self, holding: Holding) -> None:
        if any(chunks.digest(data) == holding.digest for _, _, data in self.answers):
            self.say(Receipt(job="job", round=1, digest=holding.digest, verdict="duplicate"))
        else:
            self.say(Missing(digest=holding.digest, indexes=tuple(range(chunks.count(holding.size)))))

    def publish(self) -> None:
        for index, part in enumerate(chunks.split(MODEL, chunks.digest(MODEL))):
            self.client.publish(topics.chunk("default", "job", ID, index), part, retain=True)
        self.client.publish(topics.manifest("default", "job", ID), self.manifest(), retain=True)

    @staticmethod
    def manifest() -> bytes:
        manifest = Manifest(
            job="job",
            run_id="r",
            round=1,
            digest=DIGEST,
            size=len(MODEL),
            layout=Shape.of(Tiny().layout),
            algorithm={"name": "fedavg", "batches": BATCHES, "batch": 4},
            network="tiny",
            sample=(2,),
            classes=2,
            loss="cross_entropy",
            codec="float16",  # what it leaves out is kept between rounds
            seed=7,
        )
        return SIGNER.sign(manifest.model_dump_json().encode())

    def say(self, message: Any) -> None:
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            sealed = self.speaker.seal("down", part, job="job", run_id="r", device="pi")
            self.client.publish(topics.down("default", "job", "pi"), sealed)


def seconds(events: Sequence[Any]) -> float:
    """How long a training took, however it ended."""
    told = (event for event in events if not isinstance(event, DataChecked))
    steps = [event.done.steps if isinstance(event, WorkDone) else event.steps for event in told]
    return max(steps, default=0) * PACE


def work(worker: Worker, task: Task, model_ref: ModelRef, state: Any, watch: Any) -> WorkResult:
    return replace(worker, pace=PACE, secret=False).work(task, model_ref, state, watch)


def switched_on(
    process: Process,
    broker: VirtualBroker,
    disk: FailingDisk,
    data: Samples | None = None,
    *,
    site: str = "",
    hooks: Hooks = Hooks(),
    limits: Limits = Limits(),
    scope: Scope = Scope(),
) -> Agent:
    agent = Agent(
        DeviceIdentity("pi", "default", "tiny", site=site, host="here"),
        process.wiring(broker.client("pi", Line(), process), seconds),
        disk,
        TrainingSetup(clouds() if data is None else data, lambda *_: Tiny(), work=work),
        limits=limits,
        scope=scope,
        hooks=replace(hooks, new_id=lambda: "pi-1"),
    )
    process.run(agent)
    return agent


def played(**budget: Any) -> tuple[Asks, Agent, float]:
    world = World()
    broker = VirtualBroker(world)
    asks = Asks(world, broker, **budget)
    agent = switched_on(world.process("pi"), broker, FailingDisk())
    assert world.run(until=lambda: agent.session.phase == "training")
    began = world.now
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    return asks, agent, began


def test_an_answer_comes_when_so_many_steps_have_taken_their_time():
    asks, agent, began = played()
    ((at, answer, _),) = asks.answers
    assert at == pytest.approx(began + BATCHES * PACE, abs=0.1)
    assert (answer.steps, answer.seconds_per_step) == (BATCHES, PACE)
    assert agent.session.committed == {"job.r": 1}


class Recorder(FailingDisk):
    """Notes when a file is synced by itself."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told = told

    def sync(self, name: str) -> None:
        self.told.append(f"synced {name}")
        super().sync(name)


@pytest.mark.parametrize(
    ("codec", "order"),
    [("float32", ["sent", "synced update.spool"]), ("float16", ["sent"])],
    ids=["nothing", "something"],
)
def test_an_answer_waits_for_the_disk_only_if_something_is_kept_with_it(codec: str, order: list[str], monkeypatch):
    """What float16 leaves out is kept: it was synced when it was written."""
    world = World()
    broker = VirtualBroker(world)
    manifest = Asks.manifest().replace(b'"codec":"float16"', f'"codec":"{codec}"'.encode())
    statement = signing.claim(manifest).statement
    monkeypatch.setattr(Asks, "manifest", staticmethod(lambda: SIGNER.sign(statement)))
    asks, told = Asks(world, broker), list[str]()
    agent = switched_on(world.process("pi"), broker, Recorder(told))
    send = agent.outbox.send
    monkeypatch.setattr(agent.outbox, "send", lambda held, *more: (told.append("sent"), send(held, *more)))
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    assert (told, len(asks.answers)) == (order, 1)


@pytest.mark.parametrize(("budget", "steps"), [({"seconds": 1.0}, 2), ({"batches": 3}, 3), ({"seconds": 99.0}, 6)])
def test_a_budget_is_honoured_in_virtual_time(budget: dict[str, float], steps: int):
    asks, _, began = played(**budget)
    ((at, answer, _),) = asks.answers
    assert answer.steps == steps
    assert at == pytest.approx(began + steps * PACE, abs=0.1)


def test_a_site_that_is_cut_off_is_to_its_devices_a_line_that_is_cut():
    """What is said into a bridge that is gone is lost though the broker has acknowledged it: it is not said."""
    world = World()
    broker = VirtualBroker(world)
    asks = Asks(world, broker)
    agent = switched_on(world.process("pi"), broker, FailingDisk(), site="north")
    assert world.run(until=lambda: agent.session.phase == "training")
    asks.client.publish(topics.site("default", "north"), b"0", retain=True)
    assert world.run(until=lambda: bool(agent.held), limit=1000.0), "it trains on"
    assert (asks.answers, agent.severed) == ([], True)
    birth = agent.attendance.announced_at
    asks.client.publish(topics.site("default", "north"), b"1", retain=True)
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    assert agent.attendance.announced_at > birth, "its own presence may be among what was lost"
    assert len(asks.answers) == 1


def test_a_bridge_that_is_there_all_along_is_no_news():
    world = World()
    broker = VirtualBroker(world)
    asks = Asks(world, broker)
    asks.client.publish(topics.site("default", "north"), b"1", retain=True)
    agent = switched_on(world.process("pi"), broker, FailingDisk(), site="north")
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    assert len(agent.outbox.presences) == 2, "its will, and one announcement"


def test_a_device_learns_where_its_broker_is_from_its_coordinator_alone_and_says_so():
    world = World()
    broker = VirtualBroker(world)
    asks, addresses = Asks(world, broker), BrokerAddresses(FailingDisk(), [parse("mqtts://old.local:8883")])
    agent = switched_on(world.process("pi"), broker, FailingDisk(), scope=Scope(addresses=addresses))
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    asks.speaker, true = Speaker(Signer.new(), "default", 2), asks.speaker
    asks.say(Addresses(number=9, brokers=("mqtts://evil.local:8883",)))
    assert world.run(until=lambda: agent.refusals["message.key"] == 1, limit=2000.0)
    assert addresses.known() == 0
    asks.speaker = true
    asks.say(Addresses(number=1, brokers=("mqtts://new.local:8883",)))
    assert world.run(until=lambda: addresses.known() == 1, limit=3000.0)
    assert [one.host for one in addresses()] == ["new.local", "old.local"]
    assert json.loads(signed.opened(agent.outbox.announced).payload)["moves"] == 1


class Withholds(Asks):
    """Publishes nothing at all."""

    def publish(self) -> None: ...


def test_a_model_that_comes_with_its_task_is_not_fetched():
    world = World()
    broker = VirtualBroker(world)
    asks = Withholds(world, broker, enclosed=Enclosed(manifest=Asks.manifest(), frame=MODEL))
    agent = switched_on(world.process("pi"), broker, FailingDisk())
    assert world.run(until=lambda: bool(agent.session.committed), limit=1000.0)
    assert [said.model for _, said, _ in asks.answers] == [ID]
    assert not agent.model_cache.underway


@pytest.mark.parametrize(
    ("manifest", "model", "code"),
    [
        (Asks.manifest(), MODEL[:-1] + b"x", "model.corrupt"),
        (Asks.manifest().replace(b'"round":1', b'"round":2'), MODEL, "model.foreign"),
        (Signer.new().sign(b"{}"), MODEL, "model.signature"),
        (b"{}", MODEL, "model.unsigned"),
    ],
)
def test_one_that_is_not_the_tasks_is_passed_over_and_fetched(manifest: bytes, model: bytes, code: str):
    asks, agent, _ = played(enclosed=Enclosed(manifest=manifest, frame=model))
    assert agent.refusals == {code: 1}
    assert [(said.model, data) for _, said, data in asks.answers] == [(ID, data) for _, _, data in played()[0].answers]


def test_the_same_world_says_the_same_bytes_at_the_same_moments():
    assert played()[0].answers == played()[0].answers


def lives_until_it_commits(world: World, broker: VirtualBroker, disk: FailingDisk) -> int:
    """How often the device was switched on before it knew that its answer was taken."""
    for run_key in range(1, 4):
        process = world.process("pi")
        try:
            agent = switched_on(process, broker, disk)
            assert world.run(until=partial(committed, agent, disk), limit=world.now + 1000.0)
        except PowerCut:
            process.kill(silent=True)
            disk.crash(Random(run_key))
        else:
            return run_key
    raise AssertionError("it never committed")


def committed(agent: Agent, disk: FailingDisk) -> bool:
    return "job.r.state" in disk.names() and not agent.held


@pytest.mark.parametrize("power", range(36))
def test_a_power_cut_at_any_step_of_the_disk_costs_at_most_the_training(power: int):
    """Wherever it strikes, the device comes back from its own disk, and the answer is the same to the bit."""
    world, disk = World(), FailingDisk()
    broker = VirtualBroker(world)
    asks = Asks(world, broker)
    disk.power = power
    assert lives_until_it_commits(world, broker, disk) <= 2
    assert {data for _, _, data in asks.answers} == {played()[0].answers[0][2]}


def test_a_stop_is_the_operators():
    world = World()
    broker = VirtualBroker(world)
    process = world.process("pi")
    agent = switched_on(process, broker, FailingDisk())
    world.run(until=lambda: agent.session.online)
    process.put(vocabulary.Stopped())
    world.run(limit=60.0)
    assert (agent.exit, process.alive) == ((0, "stopped"), False)
    assert not json.loads(signed.opened(broker.retained[topics.presence("default", "pi")].payload).payload)["online"]
