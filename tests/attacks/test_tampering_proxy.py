"""Somebody on the line between a fleet and its broker, over real TCP: a proxy that reads MQTT and meddles with it.

Without TLS it changes, drops, doubles and swaps what is published, both ways; acknowledgements it gives itself, so
that nobody notices a loss. The model is the undisturbed one all the same, or the run waits until the line is honest.
With TLS it can cut, and no more.
"""

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from fleets import Fleet, loop, run_file
from secured_fleet import PATIENCE, Secured, make
from secured_fleet import broker as secured_broker

from edgefl.wire.address import Address
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport, tls_context
from edgefl.wire.signing import Signer

RUN = run_file(
    {"name": "fedavg"},
    run={"rounds": 3},
    rounds={"cohort": 4, "quorum": 4, "start_with": 4, "deadline": 3.0},
    wire={"enclose_kb": 0},
)
PUBLISH, PUBACK = 3, 4
MEDDLED = 24  # publishes, after which the line is honest
CUTS = 4  # connections, after which the line is honest
QOS = 0b0110

pytestmark = pytest.mark.broker


class Packet:
    """One MQTT packet, and where its payload is if it is a PUBLISH."""

    def __init__(self, data: bytes, body: int) -> None:
        self.data, self.body = data, body
        self.kind = data[0] >> 4

    @property
    def payload_at(self) -> int:
        """Behind topic, packet id and properties."""
        at = self.body + 2 + int.from_bytes(self.data[self.body : self.body + 2], "big")
        at += 2 if self.data[0] & QOS else 0
        length, size = varint(self.data, at)
        return at + size + length

    @property
    def concerns(self) -> bool:
        """Whether it is meddled with; a device whose presence is spoilt waits a minute, which virtual time is for."""
        return b"/presence/" not in self.data[: self.payload_at] and len(self.data) > self.payload_at

    @property
    def acknowledgement(self) -> bytes:
        """What its sender waits for."""
        at = self.body + 2 + int.from_bytes(self.data[self.body : self.body + 2], "big")
        return bytes([PUBACK << 4, 2]) + self.data[at : at + 2]

    def with_payload(self, payload: bytes) -> bytes:
        assert len(payload) == len(self.data) - self.payload_at
        return self.data[: self.payload_at] + payload


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of MQTT's, and how many bytes it takes; IndexError if it has not all come."""
    value = shift = 0
    for size in range(1, 5):
        byte = data[at + size - 1]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, size
        shift += 7
    raise AssertionError("not MQTT")


def packets(buffer: bytearray) -> Iterator[Packet]:
    """Those that are whole, which leave the buffer."""
    while buffer:
        try:
            length, size = varint(buffer, 1)
        except IndexError:
            return
        end = 1 + size + length
        if len(buffer) < end:
            return
        yield Packet(bytes(buffer[:end]), 1 + size)
        del buffer[:end]


class Proxy:
    """Between clients and a broker. `meddle` says what becomes of a publish; whatever else there is passes."""

    def __init__(self, broker: int, meddle: "Meddle | None" = None, cut_after: int | None = None) -> None:
        self.broker, self.meddle, self.cut_after = broker, meddle, cut_after
        self.seen = b""  # what went by, where it is only cut
        self.meddled, self.cuts = 0, 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker))
                self._sockets += [client, broker]
                for source, target in ((client, broker), (broker, client)):
                    thread = threading.Thread(target=self._carry, args=(source, target), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        buffer, carried = bytearray(), 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.meddle is None:
                    self.seen += data
                    carried += len(data)
                    if self.cut_after is not None and carried > self.cut_after and self.cuts < CUTS:
                        self.cuts += 1
                        break
                    target.sendall(data)
                    continue
                buffer += data
                for packet in packets(buffer):
                    self._pass(packet, source, target)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pass(self, packet: Packet, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            honest = packet.kind != PUBLISH or self.meddled >= MEDDLED or not packet.concerns
            if not honest:
                self.meddled += 1
            assert self.meddle is not None
            given = [packet.data] if honest else self.meddle(packet)
            for data in given:
                target.sendall(data)
            if not given:
                source.sendall(packet.acknowledgement)

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(PATIENCE)


Meddle = Callable[[Packet], list[bytes]]  # what is sent on in the place of a publish


def changes() -> Meddle:
    chance = Random(1)

    def meddle(packet: Packet) -> list[bytes]:
        if chance.random() < 0.5:
            return [packet.data]
        payload = bytearray(packet.data[packet.payload_at :])
        payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
        return [packet.with_payload(bytes(payload))]

    return meddle


def drops() -> Meddle:
    count = iter(range(1 << 30))
    return lambda packet: [] if next(count) % 3 == 0 else [packet.data]


def doubles() -> Meddle:
    return lambda packet: [packet.data, packet.data]


def swaps() -> Meddle:
    """Half of the messages wait for the next one, and come after it, or (at the end) not at all."""
    chance = Random(2)
    waiting: list[tuple[Packet, bytes]] = []

    def meddle(packet: Packet) -> list[bytes]:
        same = [each for each in waiting if len(each[1]) == len(packet.data) - packet.payload_at]
        if same:
            waiting.remove(same[0])
            return [packet.with_payload(same[0][1])]  # its place, and the words of another
        if chance.random() < 0.5:
            waiting.append((packet, packet.data[packet.payload_at :]))
        return [packet.data]

    return meddle


@contextmanager
def between(broker: int, meddle: Meddle | None = None, cut_after: int | None = None) -> Iterator[Proxy]:
    proxy = Proxy(broker, meddle, cut_after)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.night
@pytest.mark.parametrize("how", [changes, drops, doubles, swaps], ids=lambda one: one.__name__)
def test_whatever_is_done_to_publishes_on_the_line_the_model_is_the_undisturbed_one(
    how: Callable[[], Meddle], mosquitto: Broker, tmp_path: Path
) -> None:
    events: list[dict[str, object]] = []
    with between(mosquitto.address.port, how()) as proxy:
        address = Address("mqtt", "127.0.0.1", proxy.port)
        fleet = Fleet(RUN, tmp_path, lambda name: MqttTransport(address, name), once=False)
        fleet.start_all()
        run_state = fleet.coordinator(events.append, signer=Signer.new()).run()
        fleet.stop()
        fleet.join()
    assert proxy.meddled >= 20, "it had something to meddle with"
    assert run_state.sha256() == loop(RUN).sha256()
    blamed = Counter(event["device"] for event in events if event["event"] == "quarantined")
    assert not {who for who in blamed if who in fleet.data}


# ---- with TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        fleet = make(state, "device-00", "device-01", "device-02", "device-03")
        with secured_broker(fleet):
            yield fleet


def test_with_tls_it_cuts_and_sees_nothing_and_the_model_is_the_undisturbed_one(
    secured: Secured, tmp_path: Path
) -> None:
    """Connections end in the middle, after so many bytes of one direction; the next ones go on."""
    direct = secured.fleet.folder.here
    with between(secured.port, cut_after=6_000) as proxy:
        line = Address("mqtts", "127.0.0.1", proxy.port)

        def connect(name: str) -> MqttTransport:
            if name.startswith("coordinator"):
                return MqttTransport(direct, name)
            return MqttTransport(line, name, tls=secured.tls(name))

        fleet = Fleet(RUN, tmp_path, connect, once=False)
        fleet.start_all()
        run_state = fleet.coordinator(signer=Signer.new()).run()
        fleet.stop()
        fleet.join()
        seen = proxy.seen
    assert proxy.cuts, "it did cut"
    assert run_state.sha256() == loop(RUN).sha256()
    for word in (b"edgefl/v1", b"presence", b"device-00", b"answer", b"task"):
        assert word not in seen


def test_with_tls_a_changed_byte_ends_the_connection_and_says_nothing(secured: Secured) -> None:
    """The first bytes after the handshake are the client's CONNECT: changed on the way, no broker answers it."""
    files = secured.tls("device-00")
    context = tls_context(files.ca, files.certificate, files.key)
    with socket.create_connection(("127.0.0.1", secured.port), PATIENCE) as line:
        inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = context.wrap_bio(inside, outside, server_hostname="127.0.0.1")
        while True:
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(outside.read())
                inside.write(line.recv(1 << 16))
        line.sendall(outside.read())
        secure.write(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x03abc")
        record = bytearray(outside.read())
        record[-1] ^= 1
        line.sendall(record)
        answer = b""
        with suppress(OSError):  # an alert of TLS, or the end
            while data := line.recv(1 << 16):
                inside.write(data)
                with suppress(ssl.SSLWantReadError):
                    answer += secure.read(64)
    assert not answer
