"""One question to one device: what is said where there is no answer, and a question that was lost is asked again."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from queue import SimpleQueue

import pytest

from coordinator.shell.device_keys import DeviceKeys
from edgefl.base.errors import ConfigError
from edgefl.fleet import last_seen
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.last_seen import Sighting
from edgefl.ops.diagnosis import Asker, FleetAccess, Lives, Unanswered, _Conversation, line
from edgefl.wire import chunks, key_file, signed, topics
from edgefl.wire.messages import TO_DEVICE, DeviceRequest, Presence, Reply, frame, read
from edgefl.wire.signed import SigningContext, Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message, TransportEvent
from tools.in_memory_broker import InMemoryBroker

DEVICE, PATIENCE = "pi-05", 0.4
HERE = Presence(online=True, installation="a", birth=1, version="0.1.0", answers=True)


class Device:
    """One that announces this, and answers questions from the `first` on."""

    def __init__(self, broker: InMemoryBroker, fleet: str, presence: Presence | None, first: int = 1) -> None:
        self.client, self.fleet, self.first = broker.client(DEVICE), fleet, first
        self.speaker, self.requests = Speaker(Signer.new(), fleet, 7), list[DeviceRequest]()
        self.client.start(self.hear)
        self.client.subscribe(topics.down(fleet, "+", DEVICE))
        if presence is not None:
            said = self.speaker.seal("presence", presence.model_dump_json().encode(), device=DEVICE)
            self.client.publish(topics.presence(fleet, DEVICE), said, retain=True)

    def hear(self, event: TransportEvent) -> None:
        if not isinstance(event, Message):
            return
        envelope = signed.opened(event.payload)
        envelope.prove(SigningContext("down", self.fleet, topics.SERVER, topics.DIAGNOSIS, DEVICE))
        whole = chunks.Assembler(1 << 20).add(envelope.payload)
        assert whole is not None
        request = read(TO_DEVICE, whole[1], limit=0)[0]
        assert isinstance(request, DeviceRequest)
        self.requests.append(request)
        if len(self.requests) >= self.first:
            data = frame(Reply(id=request.id, lines=("all is well",)))
            (part,) = chunks.split(data, chunks.digest(data))
            place = {"job": topics.SERVER, "run_id": topics.DIAGNOSIS, "device": DEVICE}
            self.client.publish(topics.up(self.fleet, topics.SERVER, DEVICE), self.speaker.seal("up", part, **place))


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAccess:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = FleetFolder("asked")
    return FleetAccess(folder, folder.here, Asker("asked", Signer.new(), DeviceKeys(), Lives(folder.questions)))


@pytest.fixture
def ask(way: FleetAccess) -> Callable[[InMemoryBroker], Reply]:
    def asked(broker: InMemoryBroker) -> Reply:
        events: SimpleQueue[TransportEvent] = SimpleQueue()
        transport = broker.client("asks")
        transport.start(events.put)
        return _Conversation(way, transport, DEVICE, "logs", "anna").play(events, PATIENCE)

    return asked


def test_a_device_that_is_there_is_asked_and_answers(ask: Callable[[InMemoryBroker], Reply]) -> None:
    device = Device(broker := InMemoryBroker(), "asked", HERE)
    assert ask(broker).lines == ("all is well",)
    assert [(one.what, one.by) for one in device.requests] == [("logs", "anna")]


def test_a_device_that_rests_is_asked_too(ask: Callable[[InMemoryBroker], Reply]) -> None:
    Device(broker := InMemoryBroker(), "asked", HERE.model_copy(update={"online": False, "resting": "rests: hot"}))
    assert ask(broker).lines


def test_a_question_that_was_lost_is_asked_again_under_the_same_id(ask: Callable[[InMemoryBroker], Reply]) -> None:
    device = Device(broker := InMemoryBroker(), "asked", HERE, first=2)
    assert ask(broker).lines
    assert len(device.requests) == 2
    assert len({one.id for one in device.requests}) == 1


@pytest.mark.parametrize(
    ("presence", "words"),
    [
        (HERE.model_copy(update={"online": False}), "'pi-05' is away: last seen 2026-11-01 12:30 UTC (no power)"),
        (HERE.model_copy(update={"answers": False}), "'pi-05' runs edgefl 0.1.0 that answers no questions: install"),
        (HERE.model_copy(update={"answers": False, "back_end": "gateway"}), "'pi-05' is a gateway, which answers no"),
        (None, "has not announced itself at unix://"),
    ],
    ids=["away", "older", "gateway", "never seen"],
)
def test_why_there_is_no_answer_is_one_line(
    way: FleetAccess, ask: Callable[[InMemoryBroker], Reply], presence: Presence | None, words: str
) -> None:
    at = datetime(2026, 11, 1, 12, 30, tzinfo=timezone.utc)
    last_seen.write(way.folder.seen, {DEVICE: Sighting(at=at, reason="no power")})
    device = Device(broker := InMemoryBroker(), "asked", presence)
    with pytest.raises(Unanswered) as caught:
        ask(broker)
    assert words in str(caught.value)
    assert caught.value.exit_code == 1
    assert device.requests == [], "it is not asked in vain"


def test_a_device_that_is_silent_is_named_with_what_to_look_at(ask: Callable[[InMemoryBroker], Reply]) -> None:
    Device(broker := InMemoryBroker(), "asked", HERE, first=99)
    with pytest.raises(Unanswered, match=r"is there, but did not answer within 0\.4 s"):
        ask(broker)


def test_another_in_the_name_of_a_device_is_not_taken_for_it(
    way: FleetAccess, ask: Callable[[InMemoryBroker], Reply]
) -> None:
    way.asker.keys.pin(DEVICE, Signer.new().key)
    Device(broker := InMemoryBroker(), "asked", HERE)
    with pytest.raises(Unanswered, match="is not its own: signed by"):
        ask(broker)


def test_numbers_of_those_who_ask_grow_though_the_clock_goes_back(tmp_path: Path) -> None:
    walls = iter([1000.0, 1000.0, 5.0, 2000.0])
    lives = Lives(tmp_path / "fleets" / "a.questions", lambda: next(walls))
    assert [lives.next() for _ in range(4)] == [1000, 1001, 1002, 2000]
    lives.path.write_text("spoilt")
    assert Lives(lives.path, lambda: 3000.0).next() == 3000


def test_a_fleet_without_identities_is_asked_on_its_broker_s_machine_alone(way: FleetAccess) -> None:
    with pytest.raises(ConfigError, match="the key of fleet 'asked' is not on this machine"):
        line("asked")
    key_file.opened(way.folder.signing_key, "a", elsewhere="", lost="")
    with pytest.raises(ConfigError, match="its broker's own machine only"):
        line("asked", "mqtt://192.0.2.1")
