import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgefl.base.errors import ConfigError
from edgefl.wire import broker as brokers
from edgefl.wire import mqtt
from edgefl.wire.address import Address
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import NOBODY, MqttTransport, tls_context
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Transport, TransportEvent, Undelivered, Will

PATIENCE = 20.0
CHUNK = 120 * 1024


class Peer:
    """A transport and the queue of what it tells."""

    def __init__(self, transport: MqttTransport, will: Will | None = None) -> None:
        self.transport = transport
        self.told: queue.Queue[TransportEvent] = queue.Queue()
        transport.start(self.told.put, will)

    def next(self) -> TransportEvent:
        return self.told.get(timeout=PATIENCE)

    def wait_for(self, kind: type[TransportEvent]) -> TransportEvent:
        while not isinstance(event := self.next(), kind):
            pass
        return event

    def listen(self, *filters: str) -> None:
        """Subscribe, and wait until the broker has it: a message to oneself is the proof."""
        self.transport.subscribe(*filters, "ready")
        self.transport.publish("ready", b"")
        while self.next() != Message("ready", b""):
            pass
        self.transport.unsubscribe("ready")

    def cut(self) -> None:
        """The cable is pulled: no DISCONNECT is sent."""
        self.transport._connected.socket().shutdown(socket.SHUT_RDWR)


Join = Callable[..., Peer]


@pytest.fixture
def join() -> Iterator[Join]:
    peers: list[Peer] = []

    def start(address: Address, name: str, will: Will | None = None, **options: object) -> Peer:
        peers.append(Peer(MqttTransport(address, name, **options), will))
        return peers[-1]

    yield start
    for peer in peers:
        peer.transport.close()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


Scripted = Callable[..., tuple[Peer, socket.socket]]


@pytest.fixture
def scripted(join: Join) -> Iterator[Scripted]:
    """A client, and the broker's end of its connection to say what no real broker says when asked to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        connections: list[socket.socket] = []

        def accept(properties: bytes = b"", again: Peer | None = None) -> tuple[Peer, socket.socket]:
            peer = again or join(Address("mqtt", "127.0.0.1", server.getsockname()[1]), "a")
            connection, _ = server.accept()
            connections.append(connection)
            connection.settimeout(PATIENCE)
            connection.recv(4096)
            connection.sendall(bytes([0x20, 3 + len(properties), 0, 0, len(properties)]) + properties)
            return peer, connection

        yield accept
        for connection in connections:
            connection.close()


def test_it_is_a_transport():
    transport: Transport = MqttTransport(Address("mqtt", "localhost", 1883), "a")
    transport.close()
    assert transport.backlog() == 0
    assert transport.flush(0)


def test_of_several_addresses_each_is_tried_in_turn_and_what_is_wrong_names_it(
    broker: Broker, join: Join, closed_port: int
):
    closed = Address("mqtt", "127.0.0.1", closed_port)
    peer = join(closed, "a", addresses=lambda: (closed, broker.address))
    failed = peer.next()
    assert isinstance(failed, ConnectionLost)
    assert failed.reason == f"{closed}: Connection refused"
    assert isinstance(peer.next(), ConnectionMade)
    peer.cut()
    peer.wait_for(ConnectionLost)
    assert isinstance(peer.next(), ConnectionMade), "where it was connected it is tried first"


def test_addresses_that_come_while_it_tries_are_tried_too(broker: Broker, join: Join, closed_port: int):
    closed = Address("mqtt", "127.0.0.1", closed_port)
    known = [closed]
    peer = join(closed, "a", addresses=lambda: tuple(known))
    assert isinstance(peer.next(), ConnectionLost)
    known[:] = [broker.address]
    peer.wait_for(ConnectionMade)


def test_a_megabyte_in_chunks_arrives_in_order(broker: Broker, join: Join):
    data = memoryview(bytes(range(256)) * 4096)
    receiver = join(broker.address, "receiver")
    receiver.listen("up/+")
    sender = join(broker.address, "sender")
    for at in range(0, len(data), CHUNK):
        sender.transport.publish("up/1", data[at : at + CHUNK])
    chunks = [receiver.next() for _ in range(9)]
    assert b"".join(chunk.payload for chunk in chunks) == data
    assert sender.transport.flush(PATIENCE)
    assert (sender.transport.sent, sender.transport.backlog()) == (2**20, 0)
    assert receiver.transport.received == 2**20


def test_more_messages_than_the_window_arrive_in_order(broker: Broker, join: Join):
    peer = join(broker.address, "a", window=3)
    peer.listen("t")
    for i in range(100):
        peer.transport.publish("t", bytes([i]))
    assert [peer.next().payload[0] for _ in range(100)] == list(range(100))


def test_a_retained_message_waits_until_it_is_cleared(broker: Broker, join: Join):
    sender = join(broker.address, "sender")
    sender.transport.publish("kept/1", b"x", retain=True)
    sender.transport.publish("kept/2", b"y", retain=True)
    sender.transport.publish("kept/1", b"", retain=True)
    assert sender.transport.flush(PATIENCE)
    late = join(broker.address, "late")
    late.wait_for(ConnectionMade)
    late.transport.subscribe("kept/#")
    assert late.next() == Message("kept/2", b"y", retained=True)


def test_nine_filters_are_more_than_one_subscription(broker: Broker, join: Join):
    peer = join(broker.address, "a")
    peer.listen(*(f"t/{i}" for i in range(9)))
    for i in range(9):
        peer.transport.publish(f"t/{i}", b"x")
    assert {peer.next().topic for _ in range(9)} == {f"t/{i}" for i in range(9)}


def test_nothing_comes_after_unsubscribing(broker: Broker, join: Join):
    peer = join(broker.address, "a")
    peer.listen("one", "two")
    peer.transport.unsubscribe("one")
    peer.transport.publish("one", b"x")
    peer.transport.publish("two", b"x")
    assert peer.next() == Message("two", b"x")


def test_the_will_is_sent_when_the_connection_breaks_and_the_client_comes_back(broker: Broker, join: Join):
    watcher = join(broker.address, "watcher")
    watcher.listen("presence/+")
    dies = join(broker.address, "dies", Will("presence/dies", b"gone"))
    dies.wait_for(ConnectionMade)
    dies.cut()
    assert watcher.next() == Message("presence/dies", b"gone")
    assert dies.next() == ConnectionLost("connection lost")
    assert dies.next() == ConnectionMade()


def test_the_will_is_not_sent_after_a_goodbye(broker: Broker, join: Join):
    watcher = join(broker.address, "watcher")
    watcher.listen("presence/+")
    leaves = join(broker.address, "leaves", Will("presence/leaves", b"gone"))
    leaves.transport.publish("presence/leaves", b"bye")
    assert leaves.transport.flush(PATIENCE)
    leaves.transport.close()
    watcher.transport.publish("presence/last", b"")
    assert [watcher.next().payload for _ in range(2)] == [b"bye", b""]


def test_what_was_on_its_way_when_the_connection_broke_is_sent_again(broker: Broker, join: Join):
    receiver = join(broker.address, "receiver")
    receiver.listen("t")
    sender = join(broker.address, "sender", window=2)
    sender.wait_for(ConnectionMade)
    chunk = bytes(CHUNK)
    for i in range(40):
        sender.transport.publish("t", bytes([i]) + chunk)
    sender.cut()
    seen = []
    while not seen or seen[-1] != 39:
        seen.append(receiver.next().payload[0])
    assert sorted(set(seen)) == list(range(40))
    assert sender.transport.flush(PATIENCE)
    assert sender.transport.sent == 40 * (CHUNK + 1)


def test_messages_queued_while_the_broker_restarts_are_delivered(mosquitto: Broker, join: Join):
    address = mosquitto.address
    sender = join(address, "sender")
    sender.wait_for(ConnectionMade)
    mosquitto.close()
    assert isinstance(sender.next(), ConnectionLost)
    for i in range(5):
        sender.transport.publish("kept", bytes([i]), retain=True)
    assert sender.transport.backlog() == 5
    with brokers.start(address.port, prefer="mosquitto"):
        sender.wait_for(ConnectionMade)
        assert sender.transport.flush(PATIENCE)
        late = join(address, "late")
        late.wait_for(ConnectionMade)
        late.transport.subscribe("kept")
        assert late.next() == Message("kept", b"\x04", retained=True)


def test_a_client_that_lost_its_session_to_a_twin_comes_back(scripted: Scripted):
    peer, connection = scripted()
    assert peer.next() == ConnectionMade()
    connection.sendall(b"\xe0\x02\x8e\x00")  # DISCONNECT, session taken over: not every broker says so
    assert peer.next() == ConnectionLost("Session taken over", taken_over=True)
    scripted(again=peer)
    assert peer.next() == ConnectionMade()


def test_what_the_broker_does_not_allow_is_told(scripted: Scripted):
    peer, connection = scripted()
    assert peer.next() == ConnectionMade()
    peer.transport.publish("t", b"x")
    connection.recv(9)
    connection.sendall(b"\x40\x04\x00\x01\x87\x00")  # PUBACK 1, not authorised
    assert peer.next() == Undelivered("t", "Not authorized")
    peer.transport.subscribe("a", "b")
    connection.recv(64)
    connection.sendall(b"\x90\x05\x00\x02\x00\x01\x87")  # SUBACK 2: the first granted, the second not
    assert peer.next() == Undelivered("b", "subscription refused: Not authorized")
    assert peer.transport.flush(PATIENCE)


def test_no_more_is_on_its_way_than_the_broker_can_take(scripted: Scripted):
    peer, connection = scripted(b"\x21\x00\x02")  # receive maximum 2
    assert peer.next() == ConnectionMade()
    for i in range(5):
        peer.transport.publish("t", bytes([i]))
    packets = b"".join(connection.recv(9, socket.MSG_WAITALL) for _ in range(2))
    assert (packets[8], packets[17], len(peer.transport._flight.unsettled()), peer.transport.backlog()) == (0, 1, 2, 5)
    connection.sendall(b"\x40\x02\x00\x01")  # PUBACK 1 makes room for one more
    assert connection.recv(9, socket.MSG_WAITALL)[8] == 2
    assert len(peer.transport._flight.unsettled()) == 2


def test_a_twin_ends_the_connection_of_the_first(broker: Broker, join: Join):
    first = join(broker.address, "twin")
    first.wait_for(ConnectionMade)
    second = join(broker.address, "twin")
    assert second.next() == ConnectionMade()
    assert isinstance(first.next(), ConnectionLost)


def test_a_message_over_the_limit_is_refused_and_the_others_pass(broker: Broker, join: Join):
    peer = join(broker.address, "a")
    peer.listen("t")
    peer.transport.publish("t", bytes(2**20))
    peer.transport.publish("t", b"small")
    refused = peer.next()
    assert isinstance(refused, Undelivered)
    assert "more than the broker's 1048576" in refused.reason
    assert peer.next() == Message("t", b"small")
    assert peer.transport.flush(PATIENCE)


def test_an_unreachable_broker_is_told_and_tried_again(closed_port: int, join: Join, monkeypatch):
    monkeypatch.setattr(mqtt, "REMIND", 0.0)
    peer = join(Address("mqtt", "127.0.0.1", closed_port), "a")
    assert peer.next() == peer.next() == ConnectionLost("Connection refused", remedy=NOBODY)


def test_a_broker_that_comes_late_gets_what_waited_for_it(closed_port: int, join: Join, broker: Broker):
    peer = join(Address("mqtt", "127.0.0.1", closed_port), "a")
    peer.transport.subscribe("t")
    peer.transport.publish("t", b"x")
    assert isinstance(peer.next(), ConnectionLost)
    with brokers.start(closed_port, prefer=broker.kind):
        peer.wait_for(ConnectionMade)
        assert peer.next() == Message("t", b"x")


def test_a_wrong_password_is_refused_and_the_right_one_is_not(broker: Broker, join: Join):
    users = {"ann": 'ri"ght\\'}
    with brokers.start(prefer=broker.kind, users=users) as guarded:
        assert isinstance(join(replace(guarded.address, username="ann", password="wrong"), "a").next(), ConnectionLost)
        assert isinstance(join(guarded.address, "b").next(), ConnectionLost)
        assert join(replace(guarded.address, username="ann", password=users["ann"]), "c").next() == ConnectionMade()


def test_the_reason_of_a_refusal_is_told(mosquitto: Broker, join: Join):
    with brokers.start(prefer="mosquitto", users={"ann": "right"}) as guarded:
        refused = join(guarded.address, "a").next()
        assert isinstance(refused, ConnectionLost)
        assert refused.reason == "the broker refused: Not authorized"


def test_a_failing_callback_shows_and_is_told_to_the_next_caller(broker: Broker, monkeypatch):
    shown: queue.Queue[BaseException] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.put(args.exc_value))
    transport = MqttTransport(broker.address, "a")
    transport.start(lambda _: 1 / 0)
    assert isinstance(shown.get(timeout=PATIENCE), ZeroDivisionError)
    with pytest.raises(RuntimeError, match="network thread of a died"):
        transport.publish("t", b"x")
    transport.close()


@pytest.mark.parametrize("topic", ["", "a/+", "a/#"])
def test_a_topic_with_wildcards_cannot_be_published_to(topic: str):
    transport = MqttTransport(Address("mqtt", "localhost", 1883), "a")
    with pytest.raises(ValueError, match="cannot publish"):
        transport.publish(topic, b"")
    transport.close()


def test_certificates_for_a_plain_address_are_a_mistake():
    with pytest.raises(ConfigError, match="write mqtts://"):
        MqttTransport(Address("mqtt", "localhost", 1883), "a", tls=Tls(ca=Path("ca.crt")))


def test_a_missing_certificate_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"ca\.pem: No such file"):
        tls_context(ca=tmp_path / "ca.pem")


def test_a_private_key_that_others_can_read_is_refused(tmp_path):
    key = tmp_path / "pi-01.key"
    key.write_text("secret")
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"pi-01\.key can be read by others \(mode 644\): chmod 600"):
        tls_context(certificate=tmp_path / "pi-01.crt", key=key)


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ((None, None), "write a user into its address (mqtt://USER@host), and its password"),
        (("ann", None), "put the password of user 'ann' into the environment as EDGEFL_MQTT_PASSWORD"),
        (("ann", "wrong"), "correct the user 'ann' in its address, or its password EDGEFL_MQTT_PASSWORD"),
    ],
)
def test_who_is_not_let_in_hears_so_once_and_what_to_do(mosquitto, join, monkeypatch, login, says):
    attempts = threading.Semaphore(0)
    real = MqttTransport._connection

    def counted(self):
        ended = real(self)
        attempts.release()
        return ended

    monkeypatch.setattr(MqttTransport, "_connection", counted)
    with brokers.start(prefer="mosquitto", users={"ann": "right"}) as guarded:
        peer = join(replace(guarded.address, username=login[0], password=login[1]), "a")
        for _ in range(4):
            assert attempts.acquire(timeout=PATIENCE)
        refused = peer.next()
        assert says in str(refused)
        assert "wrong" not in str(refused)
        assert peer.told.empty(), "the same is told again"
        monkeypatch.setattr(mqtt, "REMIND", 0.0)
        assert peer.next() == refused, "after a while it is told again"
