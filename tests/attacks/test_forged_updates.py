"""What a device did not sign is not counted, and nobody is blamed for what others sent in its name."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import prepared, run_file, until
from puppet import Puppet, answer, noise

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.job.config.schema import RunFile
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Assignment, DeclinedMessage, Presence, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message, Transport, TransportEvent
from tools.in_memory_broker import InMemoryBroker

VICTIM, OTHER = "device-00", "device-01"
RUN = run_file(
    {"name": "fedavg"},
    run={"rounds": 2},
    rounds={"cohort": 2, "quorum": 2, "start_with": 2},
    guards={"strikes": 3},
)
UP = topics.up("default", "fleet", VICTIM)


class Siege:
    """A coordinator, two devices of which the first is spoken for, and an attacker who hears everything."""

    def __init__(self, run: RunFile = RUN, keys: DeviceKeys | None = None) -> None:
        self.broker, self.events = InMemoryBroker(), list[dict[str, Any]]()
        self.disk_recorder: list[Message] = []
        self.attacker: Transport = self.broker.client("attacker")
        self.attacker.start(self._hear)
        self.attacker.subscribe("edgefl/v1/default/#")
        job = prepared(RUN)[0]
        self.size = job.model.layout.size
        self.coordinator = Threaded(
            run,
            self.broker.client("coordinator"),
            lambda: job,
            tell=in_json(self.events.append),
            security=Security(device_keys=keys),
        )
        self.tasks: dict[str, Assignment] = {}
        connect = self.broker.client
        self.puppets = {name: Puppet(name, connect(name), self._asked, job="fleet") for name in (VICTIM, OTHER)}
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with suppress(Interrupted):
            self.coordinator.run()

    def _hear(self, event: TransportEvent) -> None:
        if isinstance(event, Message) and event.payload:
            self.disk_recorder.append(event)

    def _asked(self, puppet: Puppet, task: Assignment) -> None:
        self.tasks[puppet.name] = task

    def start(self) -> None:
        self.thread.start()
        for puppet in self.puppets.values():
            puppet.start()
        until(lambda: len(self.tasks) == 2)

    def good(self, name: str) -> bytes:
        """The frame of an honest answer."""
        task = self.tasks[name]
        return answer(self.puppets[name], task, {"delta": noise(self.size, task.round)})

    def settled(self) -> None:
        """Everything that was sent before has been dealt with."""
        mark = f"settled {len(self.events)}"
        self.puppets[OTHER].say(frame(DeclinedMessage(job="fleet", round=0, reason=mark)))
        until(lambda: any(event.get("reason") == mark for event in list(self.events)))

    def refusals(self, code: str) -> int:
        return self.coordinator.shell.state.refusals.get(code, 0)

    def happened(self, event: str, **more: Any) -> list[dict[str, Any]]:
        return [told for told in list(self.events) if {"event": event, **more}.items() <= told.items()]

    def unharmed(self) -> None:
        """The victim is in nobody's way: its own answer counts."""
        assert not self.happened("quarantined", device=VICTIM)
        assert not self.happened("refused", device=VICTIM)
        assert not self.happened("answered", device=VICTIM)
        self.puppets[VICTIM].say(self.good(VICTIM))
        until(lambda: self.happened("answered", device=VICTIM))

    def end(self) -> None:
        self.coordinator.stop()
        self.thread.join(60)


@pytest.fixture
def siege() -> Iterator[Siege]:
    besieged = Siege()
    besieged.start()
    yield besieged
    besieged.end()


def parts(data: bytes) -> list[bytes]:
    return list(chunks.split(data, chunks.digest(data)))


def sealed(puppet: Puppet, data: bytes, **about: str) -> list[bytes]:
    """Its chunks under one signature."""
    known_as = chunks.digest(data)
    messages = (chunks.parts(data, known_as, index) for index in range(chunks.count(len(data))))
    return [b"".join(message) for message in puppet.speaker.seal_frame(messages, **about)]


def forged_by(signer: Signer, run: str, part: bytes) -> bytes:
    return Speaker(signer, "default", 1 << 31).seal("up", part, job="fleet", run_id=run, device=VICTIM)


def test_an_update_without_a_signature_is_counted_and_dropped(siege: Siege) -> None:
    for part in parts(siege.good(VICTIM)) * 10:
        siege.attacker.publish(UP, part)
    siege.settled()
    assert siege.refusals("message.unsigned") == 10
    siege.unharmed()


def test_an_update_of_another_device_in_the_victims_name_is_dropped(siege: Siege) -> None:
    other = siege.puppets[OTHER].speaker.signer
    for part in parts(siege.good(VICTIM)) * 10:
        siege.attacker.publish(UP, forged_by(other, siege.tasks[VICTIM].run_id, part))
    siege.settled()
    assert siege.refusals("message.signature") == 10
    siege.unharmed()


def test_what_a_device_said_on_its_own_topic_is_not_heard_on_anothers(siege: Siege) -> None:
    siege.puppets[OTHER].say(siege.good(OTHER))
    until(lambda: siege.happened("answered", device=OTHER))
    for message in [
        message for message in siege.disk_recorder if message.topic == topics.up("default", "fleet", OTHER)
    ]:
        siege.attacker.publish(UP, message.payload)
    siege.settled()
    assert siege.refusals("message.signature") >= 1
    siege.unharmed()


@pytest.mark.parametrize("where", [-1, 60, 110, 160], ids=["the numbers", "the signature", "the run", "the chunk"])
def test_an_update_whose_bytes_the_broker_changed_is_dropped(where: int, siege: Siege) -> None:
    """As a broker would: the message itself never comes, but for its changed copy."""
    puppet, task = siege.puppets[VICTIM], siege.tasks[VICTIM]
    for part in parts(siege.good(VICTIM)):
        message = bytearray(puppet.speaker.seal("up", part, job="fleet", run_id=task.run_id, device=VICTIM))
        message[where] ^= 1
        siege.attacker.publish(UP, bytes(message))
    siege.settled()
    assert siege.refusals("message.signature") == len(parts(siege.good(VICTIM)))
    siege.unharmed()


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 400)


@pytest.mark.usefixtures("in_chunks")
def test_a_chunk_that_was_changed_costs_the_device_nothing_but_to_send_it_again(siege: Siege) -> None:
    """One signature serves all chunks, and names the hash of the whole."""
    puppet, task = siege.puppets[VICTIM], siege.tasks[VICTIM]
    data = siege.good(VICTIM)
    about = {"job": "fleet", "run_id": task.run_id, "device": VICTIM}
    for _ in range(RUN.guards.strikes + 1):
        first, second, *rest = sealed(puppet, data, **about)
        siege.attacker.publish(UP, first)
        siege.attacker.publish(UP, second[:-1] + bytes([second[-1] ^ 1]))
        siege.attacker.publish(UP, second[:-1])
        for message in (second, first, *rest):
            siege.attacker.publish(UP, message)
        siege.settled()
    assert siege.refusals("wire.corrupt") == RUN.guards.strikes + 1
    assert siege.refusals("message.replayed") == 3 * (RUN.guards.strikes + 1), "what came in the place of others, too"
    assert not siege.happened("quarantined", device=VICTIM)
    assert not siege.happened("answered", device=VICTIM)
    until(lambda: len(puppet.missing) == RUN.guards.strikes + 1)
    for message in sealed(puppet, data, **about):
        siege.attacker.publish(UP, message)
    until(lambda: siege.happened("answered", device=VICTIM))


@pytest.mark.usefixtures("in_chunks")
def test_the_signature_of_one_frame_is_not_good_for_another(siege: Siege) -> None:
    puppet, task = siege.puppets[VICTIM], siege.tasks[VICTIM]
    good, *_ = sealed(puppet, siege.good(VICTIM), job="fleet", run_id=task.run_id, device=VICTIM)
    forged = parts(answer(puppet, task, {"delta": noise(siege.size, 99)}))
    head = good[: -len(parts(siege.good(VICTIM))[0])]
    siege.attacker.publish(UP, good)
    for part in forged:
        siege.attacker.publish(UP, head + part)
    siege.settled()
    assert siege.refusals("message.signature") == len(forged)
    siege.unharmed()


def test_a_recorded_message_does_not_count_again(siege: Siege) -> None:
    """That a device declined a round, said again in the next: it would take the device out of it."""
    puppet, task = siege.puppets[VICTIM], siege.tasks[VICTIM]
    puppet.say(frame(DeclinedMessage(job="fleet", round=task.round, reason="not now")))
    until(lambda: siege.happened("declined", device=VICTIM))
    for message in [message for message in siege.disk_recorder if message.topic == UP] * 50:
        siege.attacker.publish(UP, message.payload)
    siege.settled()
    assert len(siege.happened("declined", device=VICTIM)) == 1
    assert siege.refusals("message.replayed") == 50
    assert not siege.happened("quarantined", device=VICTIM)


def test_garbage_in_its_name_gets_nobody_into_quarantine_and_is_not_told_without_end(siege: Siege) -> None:
    stranger = Signer.new()
    for number in range(200):
        siege.attacker.publish(UP, b"garbage %d" % number)
        siege.attacker.publish(UP, forged_by(stranger, "r", b"garbage"))
        siege.attacker.publish(topics.presence("default", VICTIM), b"garbage")
    siege.settled()
    assert siege.refusals("message.unsigned") == 400
    topic = topics.presence("default", VICTIM)
    here = next(m.payload for m in siege.disk_recorder if m.topic == topic and m.payload.startswith(b"ES"))
    for _ in range(2000):  # its own word, again and again
        siege.attacker.publish(topic, here)
    siege.settled()
    assert len(siege.happened("refused")) == RUN.guards.strikes
    siege.unharmed()


def test_a_forged_presence_takes_nobody_away_and_lets_nobody_in(siege: Siege) -> None:
    gone = Presence(online=False, installation=VICTIM, birth=99)
    unsigned = gone.model_dump_json().encode()
    siege.attacker.publish(topics.presence("default", VICTIM), unsigned)
    other = Speaker(Signer.new(), "default", 99)
    siege.attacker.publish(topics.presence("default", VICTIM), other.seal("presence", unsigned, device=VICTIM))
    siege.settled()
    assert not siege.happened("lost", device=VICTIM)
    siege.unharmed()


def test_an_old_presence_does_not_bring_a_device_back(siege: Siege) -> None:
    topic = topics.presence("default", VICTIM)
    here = [message.payload for message in siege.disk_recorder if message.topic == topic]
    siege.broker.kill(VICTIM)
    until(lambda: siege.happened("lost", device=VICTIM))
    before = len(siege.happened("joined", device=VICTIM))
    for payload in here:
        siege.attacker.publish(topic, payload)
    siege.settled()
    assert len(siege.happened("joined", device=VICTIM)) == before
    assert siege.refusals("message.replayed") == len(here)


# ---- whose name it is ----------------------------------------------------------------------------------------------


def came(siege: Siege, signer: Signer, **more: Any) -> Callable[[], None]:
    """A device of the victim's name announces itself."""
    presence = Presence(online=True, installation="anew", birth=1, **more).model_dump_json().encode()
    sealed = Speaker(signer, "default", 1).seal("presence", presence, device=VICTIM)
    return lambda: siege.attacker.publish(topics.presence("default", VICTIM), sealed)


def test_a_name_stays_with_its_key_over_restarts_until_it_is_forgotten(tmp_path: Path) -> None:
    first, second = Signer.new(), Signer.new()
    path = tmp_path / "fleet.devices"
    for signer, welcome in ((first, True), (second, False), (first, True)):
        siege = Siege(keys=DeviceKeys(path))
        siege.thread.start()
        came(siege, signer)()
        until(lambda siege=siege: siege.happened("joined", device=VICTIM) or siege.happened("refused", device=VICTIM))
        assert bool(siege.happened("joined", device=VICTIM)) is welcome
        if not welcome:
            (refused,) = siege.happened("refused")
            assert refused["code"] == "device.key"
            assert f"`edgefl coordinator forget run.toml {VICTIM}`" in refused["reason"]
            assert DeviceKeys(path).forget(VICTIM), "as the operator's command does"
            came(siege, second)()
            until(lambda siege=siege: siege.happened("joined", device=VICTIM))
            assert DeviceKeys(path).forget(VICTIM)
        siege.end()
    assert path.stat().st_mode & 0o777 == 0o600
    assert DeviceKeys(path).of(VICTIM) == first.key


def test_a_run_that_lists_keys_hears_these_only(tmp_path: Path) -> None:
    listed, other = Signer.new(), Signer.new()
    run = RUN.model_copy(update={"devices": {VICTIM: listed.key}})
    siege = Siege(run)
    siege.thread.start()
    came(siege, other)()
    until(lambda: siege.happened("refused", device=VICTIM, code="device.key"))
    siege.puppets[OTHER].start()
    until(lambda: siege.happened("refused", device=OTHER, code="device.not_in_run"))
    assert "not in this run: [devices] of its run file names 1" in siege.happened("refused", device=OTHER)[0]["reason"]
    came(siege, listed)()
    until(lambda: siege.happened("joined", device=VICTIM))
    assert not siege.happened("joined", device=OTHER)
    siege.end()


def test_an_honest_pair_ends_the_run(siege: Siege) -> None:
    """What the others are measured against."""
    for number in (1, 2):
        until(lambda number=number: all(task.round == number for task in siege.tasks.values()))
        for name, puppet in siege.puppets.items():
            puppet.say(siege.good(name))
    siege.thread.join(60)
    assert siege.happened("done")
    assert not siege.coordinator.shell.state.refusals
    assert siege.coordinator.shell.artifacts.run_state is not None
    assert np.isfinite(siege.coordinator.shell.artifacts.run_state.params).all()
