"""What an agent waits for without waiting: a disk with room, its turn to announce itself, a model, a broker."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from idle_agents import Later, Stopped, idle_agent

from device_agent.decide import session, vocabulary
from device_agent.decide.vocabulary import Tasked
from device_agent.durable.privacy_ledger import NAME
from device_agent.durable.spool import SpooledUpdate, Spools
from device_agent.shell.model_cache import STALLED
from device_agent.shell.order import Item, TrainingOrder
from device_agent.shell.service import OPEN, QUIET, RETRY, Agent
from device_agent.shell.setup import Hooks, Scope
from device_agent.shell.training import WorkDone
from edgefl.base.vector import Layout
from edgefl.job.run.work import WorkResult
from edgefl.system.background import Crashed
from edgefl.system.reactor import DeadlineReached
from edgefl.wire import chunks, signed, topics
from edgefl.wire.messages import (
    TO_COORDINATOR,
    Absent,
    Assignment,
    DeclinedMessage,
    Manifest,
    Missing,
    Receipt,
    Refusal,
    Shape,
    frame,
    read,
)
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message
from tools.failing_disk import FailingDisk
from tools.in_memory_broker import InMemoryBroker

FRAME = b"an update"
DIGEST = chunks.digest(FRAME)
TASK = Tasked("job", "life", 3, "m3", "1")
PRIVATE = {"name": "fedprox", "mu": 0.1, "privacy": {"mechanism": "output", "clip": 1.0, "sigma": 1.0}}
KEPT = {"c": np.arange(4, dtype=np.float32)}
COORDINATOR = Speaker(Signer.new(), "default", 1)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def agent(disk: FailingDisk) -> Agent:
    agent = idle_agent(disk)
    agent.handle(ConnectionMade())  # it says what it would send into its own outbox
    echo(agent)
    return agent


def echo(agent: Agent, **how: bool) -> None:
    """The broker says what stands there."""
    agent.handle(Message(topics.presence("default", "pi"), agent.outbox.announced, **how))


def sent(agent: Agent) -> list[object]:
    """What was said, or the index of a chunk of the update; the outbox is then empty."""
    messages: list[object] = []
    for topic, message, *_ in agent.transport.outbox:
        if topic.endswith("/up"):
            payload = signed.opened(message).payload
            part = chunks.read(payload, 1 << 20)
            whole = chunks.Assembler(1 << 20).add(payload)
            messages.append(part.index if part.digest == DIGEST else read(TO_COORDINATOR, whole[1], 1 << 20)[0])
    agent.transport.outbox.clear()
    return messages


def tell(agent: Agent, message: object, job: str = "job") -> None:
    data = frame(message)
    for part in chunks.split(data, chunks.digest(data)):
        sealed = COORDINATOR.seal("down", part, job=job, run_id="life", device="pi")
        agent.handle(Message(topics.down("default", job, "pi"), sealed))


def receipt(verdict: str = "accepted") -> Receipt:
    return Receipt(job="job", round=3, digest=DIGEST, verdict=verdict)


def hold(agent: Agent) -> None:
    """It has trained, and waits for the receipt."""
    agent.session = replace(agent.session, phase="training", task=TASK)
    agent.handle(WorkDone(agent.trainer.number, 3, WorkResult(FRAME, KEPT, 0.1, 2)))
    assert sent(agent) == [0]


def wake(agent: Agent, seconds: float) -> None:
    """Time passes; a loop would wake it now."""
    agent.clock.time += seconds
    if (deadline := agent.deadline()) is not None and deadline <= agent.clock.time:
        agent.handle(DeadlineReached())


# ---- a full disk -----------------------------------------------------------------------------------------------------


def test_a_commit_that_does_not_fit_keeps_the_update_until_there_is_room(agent: Agent, disk: FailingDisk):
    hold(agent)
    disk.capacity = disk.used
    tell(agent, receipt())
    for _ in range(3):
        wake(agent, RETRY)
    assert "job.life.state" not in disk.names()
    assert set(Spools(disk, 4).take()) == {"job.life"}, "a power cut now costs nothing"
    disk.capacity = None
    wake(agent, RETRY)
    assert "job.life.state" in disk.names()
    assert (Spools(disk, 4).take(), agent.held) == ({}, {})


def keep_own(agent: Agent, value: float) -> None:
    """It has trained, and its algorithm leaves it a model of its own."""
    manifest = Manifest(
        job="job", run_id="life", round=3, digest="0" * 64, size=9, layout=Shape.of(Layout(("w",), ((4,),))),
        algorithm={"name": "ditto"}, network="mlp", sample=(1,), classes=2, loss="cross_entropy", codec="float32",
        seed=1,
    )  # fmt: skip
    agent.session = replace(agent.session, phase="training", task=TASK)
    agent.order = TrainingOrder(TASK, Item(manifest, b""), None, None, {}, 1 << 20, keeps=True)
    own = {"own": np.full(4, value, np.float32), "shared": np.zeros(4, np.float32)}
    agent.handle(WorkDone(agent.trainer.number, 3, WorkResult(FRAME, KEPT, 0.1, 2, own)))
    assert sent(agent) == [0]
    assert agent.order is None, "what it was trained from is not held for it"


@pytest.mark.parametrize(
    ("verdict", "value"), [("accepted", 1.0), ("duplicate", 1.0), ("late", None), ("refused", None)]
)
def test_its_own_model_is_kept_when_the_update_is_taken_even_if_the_power_fails_before(
    agent: Agent, disk: FailingDisk, verdict: str, value: float | None
):
    keep_own(agent, 1.0)
    disk.crash(Random(0))
    again = idle_agent(disk)
    again.handle(ConnectionMade())
    assert not again.own_models.runs()
    tell(again, receipt(verdict))
    assert again.own_models.runs() == ([] if value is None else ["job.life"])
    if value is not None:
        assert again.own_models.read("job.life").arrays["own"].tolist() == [value] * 4
    assert not disk.names("*.draft")


def test_an_own_model_that_does_not_fit_costs_the_update_nothing(agent: Agent, disk: FailingDisk):
    keep_own(agent, 1.0)
    tell(agent, receipt())
    disk.capacity = disk.used
    agent.session = replace(agent.session, answered={})
    keep_own(agent, 2.0)
    disk.capacity = None
    tell(agent, receipt())
    assert agent.own_models.read("job.life").arrays["own"].tolist() == [1.0] * 4, "the one before, whole"


def test_a_task_whose_price_cannot_be_booked_does_not_begin(agent: Agent, disk: FailingDisk):
    tell(agent, Assignment(job="job", run_id="life", round=3, attempt=1, model="m3"))
    at_hand(agent, PRIVATE)
    disk.capacity = disk.used
    agent._arrived()
    agent._go_on()
    wake(agent, RETRY)
    assert agent.trainer._background.waiting == []
    disk.capacity = None
    wake(agent, RETRY)
    assert json.loads(disk.read(NAME) or b"")["job.life"]["odd_updates"] == 1
    assert len(agent.trainer._background.waiting) == 1


def test_the_disk_is_tried_again_when_it_is_time_and_not_with_every_message(agent: Agent, disk: FailingDisk):
    hold(agent)
    disk.capacity, tries = disk.used, []
    commit = agent.states.commit
    agent.states.commit = lambda held: tries.append(agent.clock.time) or commit(held)
    tell(agent, receipt())
    for _ in range(50):
        tell(agent, Missing(digest=DIGEST, indexes=(0,)))
    assert agent.deadline() == agent.clock.time + RETRY
    wake(agent, RETRY / 2)
    wake(agent, RETRY / 2)
    assert tries == [1000.0, 1000.0 + RETRY]
    assert sent(agent) == [], "what came later waits for its turn"


def test_an_agent_whose_disk_is_full_can_be_stopped_and_says_why(agent: Agent, disk: FailingDisk):
    hold(agent)
    disk.capacity = disk.used
    tell(agent, receipt())
    agent.handle(vocabulary.Stopped())
    code, reason = agent.exit
    assert code == 1
    assert "cannot be written" in reason
    assert set(Spools(disk, 4).take()) == {"job.life"}


def test_a_task_is_booked_before_anything_of_it_is_opened_and_each_time_it_begins(disk: FailingDisk):
    for life in (1, 2):
        agent = idle_agent(disk)
        agent.handle(ConnectionMade())
        at_hand(agent, PRIVATE)
        tell(agent, Assignment(job="job", run_id="life", round=3, attempt=1, model="m3"))
        assert len(agent.trainer._background.waiting) == 1
        assert json.loads(disk.read(NAME) or b"")["job.life"]["odd_updates"] == life


def test_an_update_that_does_not_fit_on_the_disk_is_sent_all_the_same(agent: Agent, disk: FailingDisk):
    disk.capacity = disk.used
    hold(agent)
    assert Spools(disk, 4).take() == {}


# ---- its own turn ----------------------------------------------------------------------------------------------------


def presences(agent: Agent) -> int:
    published = [topic for topic, *_ in agent.transport.outbox if "/presence/" in topic]
    agent.transport.outbox.clear()
    return len(published)


def test_who_is_refused_announces_itself_again_ever_later(agent: Agent):
    waits = []
    presences(agent)
    for _ in range(5):
        tell(agent, Refusal(code="device.unknown", reason="not now"))
        tell(agent, Refusal(code="device.unknown", reason="not now"))
        waits.append(agent.deadline() - agent.clock.time)
        wake(agent, waits[-1] - 0.01)
        assert presences(agent) == 0
        wake(agent, 0.02)
        assert presences(agent) == 1
    assert waits == sorted(waits)
    assert waits[-1] > 8 * waits[0]


def test_nobody_announces_himself_while_offline(agent: Agent):
    tell(agent, Refusal(code="device.unknown", reason="not now"))
    agent.handle(ConnectionLost("connection lost"))
    assert agent.deadline() is None


def test_a_model_that_does_not_come_is_asked_for_again_when_it_is_overdue(agent: Agent):
    tell(agent, Assignment(job="job", run_id="life", round=3, attempt=1, model="m3"))
    assert agent.deadline() == agent.clock.time + STALLED
    for _ in range(2):
        wake(agent, STALLED)
        assert sent(agent) == [Absent(job="job", model="m3")]
    agent.handle(ConnectionLost("connection lost"))
    assert agent.deadline() is None


def test_it_is_given_up_when_others_wait(agent: Agent):
    tell(agent, Assignment(job="job", run_id="life", round=3, attempt=1, model="m3"))
    tell(agent, Assignment(job="other", run_id="life", round=1, attempt=1, model="n1"), "other")
    sent(agent)
    for _ in range(int(session.HOPELESS / STALLED) + 1):
        wake(agent, STALLED)
    assert sent(agent)[-1] == DeclinedMessage(job="job", round=3, reason="model m3 does not come, and other runs wait")
    assert list(agent.model_cache.underway) == ["n1"]


def test_a_broker_that_is_not_there_ends_an_agent_that_was_told_how_long_to_try():
    agent = idle_agent(FailingDisk(), scope=Scope("mqtt://b:1883", connect_timeout=5.0))
    agent.transport = InMemoryBroker().client("nobody listens")
    agent.transport.start = lambda *_: None
    agent.start()
    agent.handle(ConnectionLost("refused"))
    wake(agent, 4.9)
    assert not agent.ended
    wake(agent, 0.2)
    assert agent.exit == (2, "broker mqtt://b:1883 is not reachable (refused): start it, or correct agent.broker")


def test_once_it_was_connected_it_tries_for_ever():
    agent = idle_agent(FailingDisk(), scope=Scope(connect_timeout=5.0))
    agent.start()
    agent.handle(ConnectionMade())
    agent.handle(ConnectionLost("connection lost"))
    assert agent.deadline() is None


# ---- what the broker lost --------------------------------------------------------------------------------------------


def test_a_presence_that_the_broker_does_not_repeat_is_said_again_ever_more_slowly():
    agent = idle_agent(FailingDisk())
    agent.handle(ConnectionMade())
    assert presences(agent) == 1
    waits = []
    for _ in range(3):
        waits.append(agent.deadline() - agent.clock.time)
        wake(agent, waits[-1])
        assert presences(agent) == 1
    assert 2 * waits[0] < waits[2] < QUIET
    echo(agent)
    wake(agent, waits[2] * 2)
    assert presences(agent) == 0


def test_the_broker_is_asked_again_what_stands_there_sooner_with_work_in_hand(agent: Agent):
    assert agent.deadline() == agent.clock.time + QUIET
    hold(agent)
    assert agent.deadline() == agent.clock.time + OPEN
    asked = []
    agent.transport.subscribe = lambda *filters: asked.extend(filters)
    wake(agent, OPEN)
    assert set(asked) == {
        topics.state("default", "+"),
        topics.round("default", "+"),
        topics.down("default", "+", "pi"),
        topics.presence("default", "pi"),
    }
    assert presences(agent) == 0
    echo(agent, retained=True)
    assert agent.deadline() == agent.clock.time + OPEN


def test_what_stands_at_the_broker_and_is_not_its_last_word_is_corrected(agent: Agent):
    gone = agent.outbox.presence(agent.attendance.presence(online=False))
    presences(agent)
    wake(agent, QUIET)
    agent.handle(Message(topics.presence("default", "pi"), gone, retained=True))
    assert presences(agent) == 0, "this may be what stood there before its last word"
    wake(agent, agent.deadline() - agent.clock.time)
    assert presences(agent) == 1


# ---- the background --------------------------------------------------------------------------------------------------


def at_hand(agent: Agent, algorithm: Mapping[str, object] | None = None) -> None:
    manifest = Manifest(
        job="job",
        run_id="life",
        round=3,
        digest="0" * 64,
        size=1,
        layout=Shape.of(Layout(("w",), ((2,),))),
        algorithm=algorithm or {"name": "fedavg"},
        network="softmax",
        sample=(3,),
        classes=2,
        loss="cross_entropy",
        codec="float32",
        seed=1,
    )
    agent.model_cache.items["m3"] = Item(manifest, b"no model")


def test_a_model_at_hand_is_not_fetched_again(agent: Agent):
    at_hand(agent)
    tell(agent, Assignment(job="job", run_id="life", round=3, attempt=1, model="m3"))
    assert not agent.model_cache.underway
    (work,) = agent.trainer._background.waiting
    work(agent.handle)
    (message,) = sent(agent)
    assert isinstance(message, DeclinedMessage), "it was opened, and is no model"
    assert message.reason.startswith("wire.")


def test_a_bug_in_the_background_is_not_passed_over(agent: Agent):
    with pytest.raises(ZeroDivisionError):
        agent.handle(Crashed(ZeroDivisionError("a bug")))


def test_making_an_agent_starts_nothing(disk: FailingDisk):
    background = Later()
    agent = idle_agent(disk, background=background, clock=Stopped(), hooks=Hooks(new_id=lambda: "seeded"))
    assert (agent.birth.installation, agent.birth.number, background.waiting) == ("seeded", 1000, []), "by its clock"
    assert disk.writes == 2, "the birth and the key, and nothing else"


def test_an_update_from_before_belongs_to_its_run(disk: FailingDisk):
    held = SpooledUpdate("job", "job.life", 3, "1", "m3", FRAME, DIGEST, {})
    Spools(disk, 4).put(held)
    agent = idle_agent(disk)
    assert agent.session.held == {"job.life": session.HeldUpdate(TASK, DIGEST.hex(), offered=True)}
