"""The coordinator outlives every bad device, and tells it why."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, builds_with, run_file

from device_agent.shell.samples import Samples
from edgefl.learn.data.dataset import Dataset
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Answer, Presence, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"})
DEVICE = "device-00"


class Story:
    """What the coordinator told, and a way to wait for something in it."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()

    def __call__(self, event: dict[str, Any]) -> None:
        with self.news:
            self.events.append(event)
            self.news.notify_all()

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        def first_match() -> dict[str, Any] | None:
            return next((e for e in self.events if fields.items() <= e.items()), None)

        with self.news:
            assert self.news.wait_for(lambda: first_match() is not None, 60), f"never saw {fields} in {self.events}"
        event = first_match()
        assert event is not None
        return event


class Running:
    """A coordinator at work in a thread."""

    def __init__(self, fleet: Fleet) -> None:
        self.story = Story()
        self.coordinator = fleet.coordinator(self.story)
        self.thread = threading.Thread(target=self.coordinator.run, daemon=True)
        self.thread.start()

    def finish(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.story.wait_for(event="done")["rounds"] == 4


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


@pytest.fixture
def fleet(broker: InMemoryBroker, tmp_path: Path) -> Fleet:
    return Fleet(RUN, tmp_path, broker.client)


def stranger(broker: InMemoryBroker, name: str) -> Transport:
    client = broker.client(f"stranger-{name}")
    client.start(lambda _: None)
    return client


def test_a_device_of_another_protocol_is_refused_and_the_run_goes_on(broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    new = Presence(protocol=99, online=True, installation="x", birth=1)
    message = Speaker(Signer.new(), "default", 1).seal("presence", new.model_dump_json().encode(), device="pi-99")
    stranger(broker, "99").publish(topics.presence("default", "pi-99"), message, retain=True)
    refused = running.story.wait_for(event="refused", device="pi-99")
    fleet.start_all()
    running.finish()
    assert refused["code"] == "protocol.version"
    assert "protocol 99" in refused["reason"]
    assert "install the same version" in refused["reason"]


def test_a_second_agent_with_the_same_id_is_told_and_takes_no_part(fleet: Fleet, caplog) -> None:
    running = Running(fleet)
    first = fleet.agent(DEVICE)
    fleet.start(first)
    running.story.wait_for(event="joined", device=DEVICE)
    second = fleet.agent(DEVICE, client="twin")
    thread = threading.Thread(target=second.run, daemon=True)
    thread.start()
    refused = running.story.wait_for(event="refused", device=DEVICE)
    for name in list(fleet.data)[1:]:
        fleet.start(fleet.agent(name))
    running.finish()
    fleet.join()
    assert f"'{DEVICE}' is already connected from host" in refused["reason"]
    assert "give each device its own agent.id" in refused["reason"]
    assert fleet.exits[DEVICE][0] == 0
    thread.join(60)  # it has seen the run, and that it ended
    assert second.agent.session.answered == {}
    assert sum(refused["reason"] in line for line in caplog.messages if line.startswith("refused by")) == 1


def test_an_agent_that_restarts_is_no_stranger(broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    fleet.start(fleet.agent(DEVICE))
    running.story.wait_for(event="joined", device=DEVICE)
    broker.kill(DEVICE)
    running.story.wait_for(event="lost", device=DEVICE)
    fleet.start_all()
    running.finish()


def test_an_agent_with_data_of_another_shape_declines_and_says_so_at_the_end(fleet: Fleet) -> None:
    running = Running(fleet)
    wrong = Dataset(np.zeros((5, 3), np.float32), np.zeros(5, np.int64), 10)
    for name in fleet.data:
        fleet.start(fleet.agent(name, wrong if name == DEVICE else None))
    running.finish()
    fleet.join()
    code, reason = fleet.exits[DEVICE]
    assert code == 2
    assert f"device '{DEVICE}'" in reason
    assert "shape [3]" in reason
    assert "[20]" in reason
    assert running.story.wait_for(event="declined", device=DEVICE)["reason"] == reason


def test_labels_the_model_does_not_have_are_refused_by_name(fleet: Fleet) -> None:
    running = Running(fleet)
    wrong = Dataset(np.zeros((5, 20), np.float32), np.full(5, 12), 13)
    for name in fleet.data:
        fleet.start(fleet.agent(name, wrong if name == DEVICE else None))
    running.finish()
    fleet.join()
    assert "labels go up to 12" in fleet.exits[DEVICE][1]


@pytest.mark.parametrize(
    "payload", [b"", b"\x80\x04.", b"EC" + bytes(80), bytes(200)], ids=["empty", "pickle", "cut", "zeros"]
)
def test_garbage_is_counted_and_ignored(payload: bytes, broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    fleet.start(fleet.agent(DEVICE))
    running.story.wait_for(event="joined", device=DEVICE)
    stranger(broker, "noise").publish(topics.up("default", "fleet", DEVICE), payload)
    assert running.story.wait_for(event="refused", device="-")["code"] == "message.unsigned"
    for name in list(fleet.data)[1:]:
        fleet.start(fleet.agent(name))
    running.finish()
    assert sum(running.coordinator.shell.state.refusals.values()) == 1


@pytest.mark.parametrize("topic", [topics.presence("default", "pi-1"), topics.up("default", "fleet", "nobody")])
def test_nonsense_on_any_topic_is_survived(topic: str, broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    noise = stranger(broker, "noise")
    running.story.events.clear()
    for payload in (b"{}", b"[]", b"\xff\xfe", json.dumps({"online": "maybe"}).encode()):
        noise.publish(topic, payload)
    running.story.wait_for(event="refused")
    fleet.start_all()
    running.finish()


def test_an_answer_to_another_run_of_the_same_name_is_refused(broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    fleet.start(fleet.agent(DEVICE))
    running.story.wait_for(event="joined", device=DEVICE)
    for name in list(fleet.data)[1:]:
        fleet.start(fleet.agent(name))
    running.story.wait_for(event="asked", round=1)
    old = frame(
        Answer(job="fleet", run_id="long-ago", round=1, device=DEVICE, model="m", weight=1, steps=1, tensors=())
    )
    noise = stranger(broker, "replay")
    for part in chunks.split(old, chunks.digest(old)):
        message = fleet.agents[DEVICE].speaker.seal("up", part, job="fleet", run_id="long-ago", device=DEVICE)
        noise.publish(topics.up("default", "fleet", DEVICE), message)
    assert running.story.wait_for(event="refused", device="-")["code"] == "update.foreign"
    running.finish()


def test_a_broker_that_forgets_everything_costs_nothing_but_time(broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    fleet.start_all()
    running.story.wait_for(event="round", round=1)
    broker.restart()
    running.finish()


def test_a_device_that_loses_its_connection_in_a_round_comes_back(broker: InMemoryBroker, fleet: Fleet) -> None:
    running = Running(fleet)
    fleet.start_all()
    asked = running.story.wait_for(event="asked", round=1)["devices"][0]
    broker.cut(asked)
    broker.restore(asked)
    running.finish()


def test_a_device_whose_data_grow_uses_and_announces_them(fleet: Fleet) -> None:
    whole, sizes = fleet.data[DEVICE], iter(range(8, 100))

    def read() -> tuple[Dataset, None]:
        return whole.take(np.arange(next(sizes))), None

    running = Running(fleet)
    fleet.start(fleet.agent(DEVICE, Samples(*read(), read)))
    for name in fleet.data:
        if name != DEVICE:
            fleet.start(fleet.agent(name))
    running.finish()
    fleet.join()
    agent = fleet.agents[DEVICE]
    assert agent.attendance.announced == len(agent.samples.data) > 8


def test_a_device_whose_learning_fails_declines_with_its_reason_and_lives(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(fleet)
    honest = fleet.data[DEVICE]
    huge = Dataset((honest.x * np.float32(1e30)).astype(np.float32), honest.y, honest.classes)
    fleet.start(fleet.agent(DEVICE, huge))
    for name in fleet.data:
        if name != DEVICE:
            fleet.start(fleet.agent(name))
    declined = running.story.wait_for(event="declined", device=DEVICE)
    running.finish()
    fleet.join()
    assert "step 1: " in caplog.text
    assert "step" not in declined["reason"].partition("the usual causes")[0]
    assert "the usual causes are unscaled inputs or targets, and the step size" in declined["reason"]
    assert "the largest feature is" in caplog.text  # of its own log: values of its data do not leave the device
    assert fleet.exits[DEVICE][0] == 0


def test_what_a_failure_quotes_of_the_data_stays_on_the_device(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(fleet)
    names = list(fleet.data)
    ill = fleet.data[names[0]]
    texts = Dataset(ill.x, ill.y, ill.classes, tuple(f"patient {n}" for n in range(ill.classes)), numbered=False)
    first = fleet.agent(names[0], texts)
    second = fleet.agent(names[1])

    def raises(*_: Any) -> Any:
        raise ValueError("row 7 is patient 99")

    builds_with(second.agent, raises)
    for agent in (first, second, *(fleet.agent(name) for name in names[2:])):
        fleet.start(agent)
    reasons = [running.story.wait_for(event="declined", device=name)["reason"] for name in names[:2]]
    running.finish()
    assert "texts as labels and the run does not say" in reasons[0]
    assert reasons[1].startswith("ValueError.")
    assert reasons[1].endswith("the device's own log says more")
    assert not any("patient" in json.dumps(event) for event in running.story.events)
    assert "patient 0" in caplog.text
    assert "row 7 is patient 99" in caplog.text
