"""Sealed answers over a real Mosquitto: who reads everything sees no update, and can change, move or repeat none.

The listener has the rights of the broker's owner: it hears every message, and may say anything in anybody's place.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import Fleet, loop, prepared, run_file, until
from puppet import Puppet, answer, noise

from coordinator.durable.existing_run import settle
from coordinator.durable.journal import Journal
from coordinator.shell import service
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted, StoreError
from edgefl.job.config.schema import RunFile
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks, frames, signed, topics
from edgefl.wire.broker import Broker
from edgefl.wire.messages import TO_COORDINATOR, Answer, Assignment, DeclinedMessage, frame, peek
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.sealing import Opener, sealed
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message, Transport

pytestmark = pytest.mark.broker

SEAL = {"wire": {"seal": True}}
RUN = run_file({"name": "fedavg"}, run={"rounds": 3}, rounds={"cohort": 4, "quorum": 4, "start_with": 4}, **SEAL)
VICTIM, OTHER = "device-00", "device-01"


class Listener:
    """Hears everything that passes at a broker."""

    def __init__(self, broker: Broker) -> None:
        self.messages: list[Message] = []
        self.transport = MqttTransport(broker.address, "listener")
        self.transport.start(lambda event: self.messages.append(event) if isinstance(event, Message) else None)
        self.transport.subscribe("#")

    def passed(self, way: str) -> list[tuple[str, bytes]]:
        """Device and frame of everything that went up, or down."""
        assemblers: dict[str, chunks.Assembler] = {}
        gathered = []
        for message in list(self.messages):
            match topics.parts(message.topic):
                case (_, "dev", device, direction) if direction == way and message.payload:
                    assembler = assemblers.setdefault(device, chunks.Assembler(1 << 24))
                    if whole := assembler.add(signed.opened(message.payload).payload):
                        gathered.append((device, bytes(whole[1])))
        return gathered

    def answers(self) -> list[tuple[Answer, frames.Unread]]:
        """Every answer that went up."""
        read = [peek(TO_COORDINATOR, data) for _, data in self.passed("up")]
        return [(message, unread) for message, unread in read if isinstance(message, Answer)]


@pytest.fixture
def listener(mosquitto: Broker) -> Iterator[Listener]:
    ear = Listener(mosquitto)
    yield ear
    ear.transport.close()


def play(run: RunFile, broker: Broker, folder: Path) -> tuple[str, list[np.ndarray[Any, Any]]]:
    """The model that a fleet makes of it, and every update that the coordinator merged."""
    fleet = Fleet(run, folder, lambda client: MqttTransport(broker.address, client))
    fleet.start_all()
    coordinator, updates = fleet.coordinator(), []
    keep = coordinator.shell.artifacts.keep

    def keeping(digest: bytes) -> None:
        record = coordinator.shell.artifacts.answers.records[digest]
        assert record.update is not None
        updates.append(record.update.delta.copy())
        keep(digest)

    coordinator.shell.artifacts.keep = keeping  # type: ignore[method-assign]
    sha = coordinator.run().sha256()
    fleet.join()
    return sha, updates


def seen(updates: list[np.ndarray[Any, Any]], passed: bytes) -> int:
    """How many runs of four numbers of these updates can be found in what passed."""
    return sum(
        delta[at : at + 4].tobytes() in passed
        for delta in updates
        for at in range(0, len(delta) - 4, 4)
        if delta[at : at + 4].all()
    )


def test_whoever_reads_everything_sees_no_update_and_the_model_is_the_same(
    mosquitto: Broker, listener: Listener, tmp_path: Path
) -> None:
    sha, updates = play(RUN, mosquitto, tmp_path)
    assert sha == loop(RUN).sha256()
    assert len(updates) == len(listener.answers()) == 12
    assert all(unread.sealed for _, unread in listener.answers())
    assert seen(updates, b"".join(message.payload for message in listener.messages)) == 0


def test_without_a_seal_it_would_see_them_and_the_model_is_the_same(
    mosquitto: Broker, listener: Listener, tmp_path: Path
) -> None:
    """What the test above is worth."""
    run = run_file({"name": "fedavg"}, run={"rounds": 3}, rounds={"cohort": 4, "quorum": 4, "start_with": 4})
    sha, updates = play(run, mosquitto, tmp_path)
    assert sha == loop(RUN).sha256()
    assert seen(updates, b"".join(message.payload for message in listener.messages)) > 100


class Siege:
    """A coordinator that wants sealed answers, and two devices that say what they are told to."""

    def __init__(self, broker: Broker) -> None:
        self.run = run_file(
            {"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 2, "quorum": 2, "start_with": 2}, **SEAL
        )
        self.connect: Callable[[str], Transport] = lambda client: MqttTransport(broker.address, client)
        self.events: list[dict[str, Any]] = []
        job = prepared(self.run)[0]
        self.size, self.tasks = job.model.layout.size, dict[tuple[str, int], Assignment]()
        self.coordinator = Threaded(
            self.run, self.connect("coordinator"), lambda: job, tell=in_json(self.events.append)
        )
        self.puppets = {name: Puppet(name, self.connect(name), self._asked, job="fleet") for name in (VICTIM, OTHER)}
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with suppress(Interrupted):
            self.coordinator.run()

    def _asked(self, puppet: Puppet, task: Assignment) -> None:
        self.tasks[puppet.name, task.round] = task

    def start(self) -> None:
        self.thread.start()
        for puppet in self.puppets.values():
            puppet.start()
        self.until_asked(1)

    def until_asked(self, round: int) -> None:
        until(lambda: all((name, round) in self.tasks for name in self.puppets))

    def plain(self, name: str, round: int = 1) -> bytes:
        task = self.tasks[name, round]
        return answer(self.puppets[name], task, {"delta": noise(self.size, round)})

    def good(self, name: str, round: int = 1) -> bytes:
        key = self.tasks[name, round].seal
        assert key is not None
        return sealed(self.plain(name, round), key)

    def say(self, name: str, data: bytes) -> str:
        """What the device says, signed as it should be; the reason why it is refused, or that it is accepted."""
        puppet = self.puppets[name]
        before = len(puppet.verdicts)
        puppet.say(data)
        until(lambda: len(puppet.verdicts) > before)
        verdict, reason = puppet.verdicts[-1]
        return verdict if verdict == "accepted" else reason

    def refusals(self, code: str) -> int:
        return self.coordinator.shell.state.refusals.get(code, 0)

    def end(self) -> None:
        self.coordinator.stop()
        self.thread.join(60)
        for puppet in self.puppets.values():
            puppet.transport.close()


@pytest.fixture
def siege(mosquitto: Broker) -> Iterator[Siege]:
    besieged = Siege(mosquitto)
    besieged.start()
    yield besieged
    besieged.end()


def test_an_open_answer_is_refused_where_a_sealed_one_is_wanted(siege: Siege) -> None:
    assert "open answer" in siege.say(VICTIM, siege.plain(VICTIM))
    assert siege.refusals("update.unsealed") == 1
    assert siege.say(VICTIM, siege.good(VICTIM)) == "accepted"


def test_a_seal_that_does_not_open_is_refused_and_held_against_whoever_signed_it(siege: Siege) -> None:
    """Sealed for somebody else; changed by its own device before it was signed."""
    changed = bytearray(siege.good(VICTIM))
    changed[-1] ^= 1
    stranger = sealed(siege.plain(VICTIM), Opener(Signer.new()).key)
    for bad in (bytes(changed), stranger, bytes(changed[:-1])):
        siege.puppets[VICTIM].say(bad)
    until(lambda: [event for event in siege.events if event["event"] == "quarantined"])
    (told,) = [event for event in siege.events if event["event"] == "quarantined"]
    assert told["device"] == VICTIM
    assert siege.refusals("update.seal") == 3


def test_a_sealed_body_opens_in_no_other_answer(siege: Siege) -> None:
    """Not in that of another device, nor with another weight, though it is signed by who sends it."""
    foreign, own = frames.peek(siege.good(OTHER)), frames.peek(siege.good(VICTIM))
    assert "seal" in siege.say(VICTIM, bytes(own.head) + bytes(foreign.data))
    message, unread = peek(TO_COORDINATOR, siege.good(VICTIM))
    assert isinstance(message, Answer)
    heavier = frame(message.model_copy(update={"weight": 11.0}), (bytes(unread.size),))
    head, _ = frames.for_sealing(heavier)
    assert "seal" in siege.say(VICTIM, head + bytes(unread.data))
    assert siege.refusals("update.seal") == 2


def test_a_sealed_answer_of_another_round_or_that_comes_again_counts_once(siege: Siege) -> None:
    first = siege.good(VICTIM)
    assert siege.say(VICTIM, first) == "accepted"
    siege.puppets[VICTIM].say(first)
    until(lambda: ("duplicate", "") in [(verdict, "") for verdict, _ in siege.puppets[VICTIM].verdicts])
    assert siege.say(OTHER, siege.good(OTHER)) == "accepted"
    siege.until_asked(2)
    old, new = frames.peek(first), frames.peek(siege.good(VICTIM, 2))
    assert "seal" in siege.say(VICTIM, bytes(new.head) + bytes(old.data))
    assert siege.say(VICTIM, siege.good(VICTIM, 2)) == "accepted"


def test_a_seal_is_for_answers_only(siege: Siege) -> None:
    """Nothing else has a body: it is refused unopened."""
    key = siege.tasks[VICTIM, 1].seal
    assert key is not None
    siege.puppets[VICTIM].say(sealed(frame(DeclinedMessage(job="fleet", round=1, reason="no")), key))
    until(lambda: siege.refusals("wire.too_large") == 1)
    assert siege.say(VICTIM, siege.good(VICTIM)) == "accepted"


def test_a_device_never_answers_a_sealed_task_openly_and_sends_the_same_bytes_again(
    mosquitto: Broker, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator goes while it holds the answer, and so does the device itself: the spool has it sealed."""
    monkeypatch.setattr(service, "TOGETHER", 0.0)  # the first answer is told of before the others have come
    run = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 4, "quorum": 4, "deadline": 3600.0}, **SEAL)
    folder, connect = tmp_path / "run", lambda client: MqttTransport(mosquitto.address, client)
    fleet = Fleet(run, tmp_path, connect)
    names = list(fleet.data)

    def coordinate(number: int, until_told: Callable[[dict[str, Any]], bool]) -> Threaded:
        settle(folder, run, fresh=False)
        client = connect(f"coordinator-{number}")

        def tell(event: dict[str, Any]) -> None:
            if until_told(event):
                coordinator.stop()

        coordinator = Threaded(run, client, lambda: prepared(run)[0], folder=folder, tell=in_json(tell))
        return coordinator

    hosts = {name: fleet.agent(name) for name in names}
    for host in hosts.values():
        fleet.start(host)
    with pytest.raises(Interrupted):
        coordinate(1, lambda event: event["event"] == "answered").run()
    kept = [Journal(FolderDisk(folder), reading=True)]
    in_journal = [bytes(one.frame) for book in kept for one in book.answers()]
    assert in_journal
    assert all(frames.peek(data).sealed for data in in_journal)
    until(lambda: len(listener.answers()) >= len(names))  # everybody has trained; only one has a receipt
    for host in hosts.values():
        host.stop()
    fleet.join()
    held = [path.read_bytes() for path in tmp_path.glob("device-*/**/update*.spool")]
    again = Fleet(run, tmp_path, connect)
    again.start_all()
    sha = coordinate(2, lambda _event: False).run().sha256()
    again.join()
    assert sha == loop(run).sha256()
    sent = {bytes(unread.data) for answered, unread in listener.answers() if answered.round == 1}
    assert len(sent) == len(names), "what was sent again is what was sent before"
    assert all(unread.sealed for _, unread in listener.answers())
    assert any(any(data in file for data in sent) for file in held)


def test_answers_sealed_for_a_key_that_is_gone_are_told_as_such(mosquitto: Broker, tmp_path: Path) -> None:
    run = replace_rounds(RUN)
    folder, connect = tmp_path / "run", lambda client: MqttTransport(mosquitto.address, client)
    fleet = Fleet(run, tmp_path, connect)
    fleet.start_all()

    def coordinate(signer: Signer) -> None:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "answered":
                coordinator.stop()

        job = prepared(run)[0]
        coordinator = Threaded(
            run, connect("coordinator"), lambda: job, folder=folder, tell=in_json(tell), security=Security(signer)
        )
        coordinator.run()

    with pytest.raises(Interrupted):
        coordinate(Signer.new())
    with pytest.raises(StoreError, match="sealed for another key: restore the coordinator's key"):
        coordinate(Signer.new())
    for host in fleet.hosts.values():
        host.stop()
    fleet.join()


def replace_rounds(run: RunFile) -> RunFile:
    return run.model_copy(update={"rounds": run.rounds.model_copy(update={"deadline": 3600.0})})


def test_a_run_that_begins_to_seal_has_open_answers_made_anew(mosquitto: Broker, tmp_path: Path) -> None:
    """What is in the journal counts as it is; who has only trained does so again, and nobody ends in quarantine."""
    told: list[dict[str, Any]] = []
    folder, connect = tmp_path / "run", lambda client: MqttTransport(mosquitto.address, client)
    fleet = Fleet(RUN, tmp_path, connect)
    fleet.start_all()

    def coordinate(run: RunFile, last: str) -> str:
        settle(folder, run, fresh=False)

        def tell(event: dict[str, Any]) -> None:
            told.append(event)
            if event["event"] == last:
                coordinator.stop()

        job = prepared(RUN)[0]
        coordinator = Threaded(run, connect("coordinator"), lambda: job, folder=folder, tell=in_json(tell))
        return coordinator.run().sha256()

    with pytest.raises(Interrupted):
        coordinate(RUN.model_copy(update={"wire": RUN.wire.model_copy(update={"seal": False})}), "answered")
    assert coordinate(RUN, "never") == loop(RUN).sha256()
    fleet.join()
    assert not [event for event in told if event["event"] == "quarantined"]
