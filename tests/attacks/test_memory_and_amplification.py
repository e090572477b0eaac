"""Little that asks for much: memory that was only claimed, bodies that expand, questions whose answers are large.

Each costs the coordinator (or the agent) less than 64 MiB and the device its standing.
"""

import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import prepared, run_file
from listening import agent_that_heard, sealed
from puppet import Puppet, answer

from coordinator.decide import core, vocabulary
from coordinator.decide.roster import Announcement
from coordinator.decide.rounds import Rounds, Rules
from coordinator.decide.state import State
from coordinator.decide.strikes import Conduct
from coordinator.shell.guards import Guard
from coordinator.shell.inbox import Evicted, Inbox
from coordinator.shell.outbox import CoordinatorOutbox
from coordinator.shell.threaded import Threaded
from device_agent.durable.trust import RequestedModel, Trust
from device_agent.shell.download import Download
from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.job.config.agent_file import LIMIT_MB
from edgefl.job.config.schema import Guards
from edgefl.job.run.answer_schema import AnswerSchema, body_limit
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks, topics
from edgefl.wire.codecs import codec
from edgefl.wire.frames import pack, zstd
from edgefl.wire.messages import (
    Absent,
    Answer,
    Assignment,
    Holding,
    Missing,
    Presence,
    Receipt,
    Tensor,
    Working,
    frame,
)
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker

MIB = 1 << 20
CLAIM = 512 * MIB
RUN = run_file(
    {"name": "fedavg"},
    rounds={"cohort": 2, "quorum": 2, "start_with": 2},
    guards={"messages_per_minute": 100},
)
BAD, IDLE = "device-00", "device-01"


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    """No more than so many bytes are allocated at a time."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.0f} MiB"


def claims(seed: int) -> list[bytes]:
    """The first and the last chunk of a frame of 512 MiB that does not exist."""
    head, count = struct.Struct("<2sBB32sIIQ"), chunks.count(CLAIM)
    sizes = {0: chunks.CHUNK, count - 1: CLAIM - (count - 1) * chunks.CHUNK}
    return [head.pack(b"EC", 1, 0, bytes([seed] * 32), i, count, CLAIM) + bytes(n) for i, n in sizes.items()]


def bomb(message: Any, size: int = 128 * MIB) -> bytes:
    """A frame of a few kilobytes whose body wants to be large."""
    data = frame(message)
    *_, head_size, _ = struct.unpack_from("<4sBBIQ", data)
    return data[:5] + b"\1" + struct.pack("<IQ", head_size, size) + data[18:] + zstd.compress(bytes(size), level=1)


class Attacked:
    """A real coordinator whose first round is open, an idle device, and one that does as it is told."""

    def __init__(self) -> None:
        self.broker = InMemoryBroker()
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.transport = self.broker.client("coordinator")
        self.coordinator = Threaded(RUN, self.transport, lambda: prepared(RUN)[0], tell=in_json(self.tell))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.task: Assignment | None = None
        self.bad = Puppet(BAD, self.broker.client(BAD), self._asked, job="fleet")
        self.idle = Puppet(IDLE, self.broker.client(IDLE), lambda _p, _t: None, job="fleet")
        self.thread.start()
        self.bad.start()
        self.idle.start()
        self.wait_for(lambda: self.task is not None)

    def _run(self) -> None:
        try:
            self.coordinator.run()
        except Exception as problem:  # noqa: BLE001 - being stopped, or told by whoever waits
            self.tell({"event": "ended", "problem": problem})

    def _asked(self, _: Puppet, task: Assignment) -> None:
        self.task = task
        self.tell({"event": "asked"})

    def tell(self, event: dict[str, Any]) -> None:
        with self.news:
            self.events.append(event)
            self.news.notify_all()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(holds, 120), self.events[-5:]

    def count(self, event: str, **more: Any) -> int:
        return sum({"event": event, **more}.items() <= told.items() for told in list(self.events))

    def quarantined(self) -> None:
        self.wait_for(lambda: bool(self.count("quarantined")))
        assert self.count("quarantined", device=BAD) == 1

    def settled(self) -> None:
        """Everything sent so far has been dealt with."""
        before = self.count("lost")
        self.idle.transport.publish(topics.presence("default", IDLE), self.idle._presence(online=False))
        self.wait_for(lambda: self.count("lost") > before)

    def end(self) -> None:
        self.coordinator.stop()
        self.thread.join(60)


@pytest.fixture
def attacked() -> Iterator[Attacked]:
    fleet = Attacked()
    yield fleet
    fleet.end()


def test_chunks_that_claim_512_mib_take_no_memory_and_cost_the_device_its_standing(attacked: Attacked) -> None:
    messages = [message for seed in (1, 2) for message in claims(seed)]
    with at_most(8 * MIB):
        for message in messages:
            attacked.bad.publish(message)
        attacked.quarantined()
    assert attacked.coordinator.shell.state.refusals["wire.too_large"] == 3


def test_a_bomb_inside_a_small_message_is_not_opened(attacked: Attacked) -> None:
    data = bomb(Working(job="fleet", round=1, steps=1))
    with at_most(8 * MIB):
        for _ in range(30):
            attacked.bad.say(data)
        attacked.quarantined()
        attacked.settled()
    assert attacked.coordinator.shell.state.refusals == {"wire.too_large": 3, "device.quarantined": 27}


@pytest.mark.parametrize("tensors", [[{}] * 65_000, [{"name": "a", "kind": "b", "bytes": 1, "shape": [-1] * 65_000}]])
def test_a_header_of_mistakes_is_put_away_at_the_first(tensors: list[dict[str, Any]], attacked: Attacked) -> None:
    """Each mistake would become an object: 65 KB were half a gigabyte."""
    header = {"kind": "answer", "job": "fleet", "run_id": "r", "round": 1, "device": BAD, "model": "m", "weight": 1.0}
    mistakes = pack({**header, "steps": 1, "tensors": tensors})
    with at_most(16 * MIB):
        for _ in range(3):
            attacked.bad.say(mistakes)
        attacked.quarantined()


def test_an_answer_expands_to_what_the_model_says_and_no_further(attacked: Attacked) -> None:
    task = attacked.task
    assert task is not None
    tensor = Tensor(name="delta", kind="float32", shape=(32 * MIB,), bytes=128 * MIB)
    about = {"job": task.job, "run_id": task.run_id, "round": 1, "device": BAD, "model": task.model}
    data = bomb(Answer(**about, weight=1, steps=1, tensors=(tensor,)))
    with at_most(8 * MIB):
        attacked.bad.say(data)
        attacked.wait_for(lambda: attacked.count("refused", code="wire.too_large") == 1)


def test_a_duplicate_is_not_even_opened(attacked: Attacked) -> None:
    task = attacked.task
    assert task is not None
    size = prepared(RUN)[0].model.layout.size
    attacked.bad.say(answer(attacked.bad, task, {"delta": np.zeros(size, np.float32)}))
    about = {"job": task.job, "run_id": task.run_id, "round": 1, "device": BAD, "model": task.model}
    data = bomb(Answer(**about, weight=1, steps=1, tensors=()), 64 * MIB)
    with at_most(8 * MIB):
        attacked.bad.say(data)
        attacked.settled()
    assert [verdict for verdict, _ in attacked.bad.verdicts] == ["accepted", "duplicate"]


def test_asking_again_for_a_model_does_not_make_the_coordinator_shout(attacked: Attacked) -> None:
    task = attacked.task
    assert task is not None
    attacked.settled()
    before = attacked.transport.sent
    for _ in range(50):
        attacked.bad.say(frame(Absent(job="fleet", model=task.model)))
    attacked.settled()
    model = attacked.coordinator.shell.artifacts.publisher.published[1]  # type: ignore[union-attr]  # the round is open
    assert attacked.transport.sent - before < 2 * (len(model.frame) + len(model.manifest)) + 4096
    for _ in range(500):
        attacked.bad.say(frame(Absent(job="fleet", model=task.model, forged=True)))
    attacked.quarantined()
    assert attacked.coordinator.shell.state.refusals["device.flooding"] == 3


def test_holding_what_was_never_sent_is_answered_a_bounded_number_of_times(attacked: Attacked) -> None:
    for i in range(1000):
        digest = i.to_bytes(32, "big")
        attacked.bad.say(frame(Holding(job="fleet", run_id="other", round=1, digest=digest, size=100)))
    attacked.quarantined()
    assert len(attacked.bad.verdicts) < 500


def test_a_device_that_comes_and_goes_without_end_is_not_heard_any_more(attacked: Attacked) -> None:
    for i in range(1000):
        presence = attacked.bad._presence(online=bool(i % 2))
        attacked.bad.transport.publish(topics.presence("default", BAD), presence)
    attacked.quarantined()
    attacked.settled()
    assert attacked.count("joined", device=BAD) + attacked.count("lost", device=BAD) < 500, (
        "some is made good with time"
    )


def test_a_presence_of_a_megabyte_is_not_read(attacked: Attacked) -> None:
    fat = Presence(online=True, installation="x", birth=1).model_copy(update={"host": "x" * MIB})
    attacked.bad.transport.publish(topics.presence("default", BAD), attacked.bad.presence(fat))
    attacked.wait_for(lambda: attacked.count("refused", code="wire.too_large") == 1)


# ---- the agent -----------------------------------------------------------------------------------------------------


def test_an_agent_believes_no_claim_and_opens_no_bomb(tmp_path: Path) -> None:
    receipt = bomb(Receipt(job="fleet", round=1, digest=bytes(32), verdict="accepted"))
    down = topics.down("default", "fleet", BAD)
    claimed = [(down, sealed(message)) for seed in (1, 2) for message in claims(seed)]
    with at_most(16 * MIB):
        agent = agent_that_heard(
            RUN, tmp_path, [*claimed, (down, sealed(next(chunks.split(receipt, chunks.digest(receipt)))))]
        )
    assert agent.refusals == {"wire.too_large": 5}


def test_an_agent_takes_no_more_of_a_model_than_it_asked_for(tmp_path: Path) -> None:
    model_ref = RequestedModel("fleet", "r", 1, bytes([1] * 32).hex()[:16])
    download = Download("default", model_ref, Trust(FolderDisk(tmp_path), "default"), LIMIT_MB << 20)
    with at_most(2 * MIB):
        for message in claims(1):
            with pytest.raises(WireError, match="the limit is"):
                download.add("0", message)
    download = Download("default", model_ref, Trust(FolderDisk(tmp_path), "default"), CLAIM)
    assert not download.add("0", claims(1)[0])
    with pytest.raises(WireError, match="was not asked for"):  # it is of the last group, the first is being fetched
        download.add("0", claims(1)[1])


# ---- the bounds themselves -----------------------------------------------------------------------------------------


def test_all_unfinished_transfers_together_are_bounded_and_the_one_that_waits_longest_goes() -> None:
    broker = InMemoryBroker()
    outbox = CoordinatorOutbox(broker.client("c"), "default", "fleet", "r", signer=Signer.new())
    inbox = Inbox(outbox, Guards(), 4 * chunks.CHUNK, lambda _: True)
    inbox.allow(3 * chunks.CHUNK)
    inbox.total = 4 * chunks.CHUNK
    frames = {name: bytes([i]) * (3 * chunks.CHUNK) for i, name in enumerate("abc")}
    for name in frames:
        inbox.meet(name)
    for index in (0, 1):
        for now, (name, data) in enumerate(frames.items()):
            whole = inbox.gather(name, chunks.chunk(data, chunks.digest(data), index), 10.0 * index + now)
            assert whole in ("begun", None)
            assert inbox.held == sum(device.assembler.held() for device in inbox.transfers.values()) <= inbox.total
    devices = inbox.transfers
    assert [devices[name].assembler.missing(chunks.digest(frames[name])) for name in "abc"] == [[], [2], [0, 2]]


def test_what_had_to_go_is_asked_for_as_soon_as_there_is_room() -> None:
    broker = InMemoryBroker()
    outbox = CoordinatorOutbox(broker.client("c"), "default", "fleet", "r", signer=Signer.new())
    asked: list[tuple[str, object]] = []
    outbox.say = lambda device, message: asked.append((device, message))  # type: ignore[method-assign, assignment]
    inbox = Inbox(outbox, Guards(), 0, lambda _: True)
    inbox.allow(3 * chunks.CHUNK)
    inbox.total = 3 * chunks.CHUNK
    first, second = (bytes([i]) * (3 * chunks.CHUNK) for i in (1, 2))
    for name, data, indexes in (("a", first, (0, 1)), ("b", second, (0, 1))):
        inbox.meet(name)
        for index in indexes:
            inbox.gather(name, chunks.chunk(data, chunks.digest(data), index), 1.0)
    assert (list(inbox.evicted), list(inbox.underway)) == (["a"], ["b"])
    inbox.remind(2.9)
    assert asked == [], "there is no room yet"
    assert inbox.gather("b", chunks.chunk(second, chunks.digest(second), 2), 2.9) == (chunks.digest(second), second)
    assert inbox.deadline() == 3.0
    inbox.remind(3.0)
    assert asked == [("a", Missing(digest=chunks.digest(first), indexes=(0, 1, 2)))]
    inbox.gather("a", chunks.chunk(first, chunks.digest(first), 0), 3.5)
    assert not inbox.evicted, "it comes"


def test_what_had_to_go_is_not_asked_for_without_end() -> None:
    outbox = CoordinatorOutbox(InMemoryBroker().client("c"), "default", "fleet", "r", signer=Signer.new())
    inbox = Inbox(outbox, Guards(), 1 << 20, lambda _: True)
    inbox.meet("a")
    inbox.evicted["a"] = Evicted(bytes(32), 100, 0.0)
    moments = []
    while (due := inbox.deadline()) is not None:
        inbox.remind(due)
        moments.append(due)
    assert len(moments) == 6
    assert not inbox.evicted


def test_names_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.decide.roster.DEVICES", 3)
    monkeypatch.setattr("coordinator.shell.guards.RECORDS", 5)
    outbox = CoordinatorOutbox(InMemoryBroker().client("c"), "default", "fleet", "r", signer=Signer.new())
    inbox = Inbox(outbox, Guards(), 1 << 20, lambda _: True)
    rules = Rules(rounds=1, seed=1, cohort=9, quorum=9, deadline=60.0)
    state, here = State(Rounds(rules), Conduct(1, 60.0)), Announcement(True, "x", 1)
    for i in range(50):
        inbox.count(f"pi-{i}", 0.0)
        state, actions, _ = core.step(state, vocabulary.Announced(0.0, f"pi-{i}", here))
        assert (vocabulary.Meet(f"pi-{i}") in actions) == (i < 3), "a place to put its chunks is made for those only"
        assert state.refusals.get("device.too_many", 0) == max(0, i - 2)
    assert list(state.devices) == ["pi-0", "pi-1", "pi-2"]
    assert len(inbox.guard.records) == 5


def test_names_as_long_as_a_topic_are_neither_kept_nor_repeated(attacked: Attacked) -> None:
    nothing = attacked.bad._presence(online=True)
    long = [f"{i}{'x' * 60_000}" for i in range(200)]
    with at_most(32 * MIB):  # all of them may be on their way at once
        for i, name in enumerate(long):
            topic = topics.presence("default", name) if i % 2 else topics.up("default", "fleet", name)
            attacked.bad.transport.publish(topic, nothing)
        attacked.settled()
    assert attacked.coordinator.shell.state.refusals == {"device.name": 100, "device.unknown": 100}
    assert attacked.count("refused") == 3
    assert attacked.count("quarantined", device="-") == 1
    assert not any(len(str(event)) > 1000 for event in attacked.events)


def test_memory_grows_with_what_has_come() -> None:
    assembler = chunks.Assembler(CLAIM)
    with at_most(2 * MIB):
        for message in claims(1):
            assert assembler.add(message) is None
    assert assembler.held() == len(claims(1)[0]) + len(claims(1)[1]) - 2 * chunks.HEAD
    assert len(assembler.missing(bytes([1] * 32))) == chunks.count(CLAIM) - 2


def test_what_an_answer_may_weigh_follows_from_the_model_and_the_algorithm() -> None:
    layout = Layout(("w", "b"), ((30, 30), (100,)))
    assert body_limit(AnswerSchema(), layout, codec("float32")) == 4000
    assert (
        body_limit(AnswerSchema({"c": (1000,)}, {"c": (1000,), "n": ()}), layout, codec("float32")) == 4000 + 8 * 1001
    )


def test_what_an_answer_may_weigh_follows_from_the_codec() -> None:
    layout = Layout(("w", "b", "seen"), ((30, 30), (100,), (5,)), buffers=1)
    assert body_limit(AnswerSchema(), layout, codec("float16")) == 2 * 1005
    assert body_limit(AnswerSchema(), layout, codec("int8")) == 8 + 2 * 8 + 1000 + 4 * 5
    assert body_limit(AnswerSchema(), layout, codec({"codec": "topk", "share": 0.01})) == 10 + 125 + 2 * 10 + 4 * 5


def test_a_quota_of_messages_is_made_good_with_time() -> None:
    guard = Guard(Guards(messages_per_minute=60))
    assert [guard.may_speak("pi", 100.0) for _ in range(61)] == [True] * 60 + [False]
    assert guard.may_speak("other", 100.0)
    assert guard.may_speak("pi", 101.0)
    assert not guard.may_speak("pi", 101.5)
