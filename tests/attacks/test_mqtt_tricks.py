"""Words of MQTT that clients of ours never say, from a member's own certificate, to the real Mosquitto of its fleet.

Packets are written by hand, because no library would send most of them. Nothing of it is said in another's name, and
the broker goes on serving. What must not come is known by what comes after it: the thief's last word, in its own name.
"""

import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest
from secured_fleet import PATIENCE, Party, Secured, broker, context, make

from edgefl.wire import topics
from edgefl.wire.transport import LARGEST

FLEET, JOB, ME, OTHER = "default", "digits", "pi-1", "pi-2"
MINE, FOREIGN = topics.presence(FLEET, ME), topics.presence(FLEET, OTHER)
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, DISCONNECT = 0x10, 0x20, 0x30, 0x40, 0x50, 0x62, 0xE0
QOS1, QOS2, RETAIN = 0x02, 0x04, 0x01
V31, V311, V5, BRIDGE = 3, 4, 5, 0x80
ALIAS, RESPONSE_TOPIC, USER, EXPIRY = 0x23, 0x08, 0x26, 0x02

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        secured = make(state, ME, OTHER)
        with broker(secured):
            yield secured


@pytest.fixture
def coordinator(fleet: Secured) -> Iterator[Party]:
    party = Party(fleet.port, fleet.tls("coordinator"))
    party.subscribe(f"{topics.ROOT}/#")
    yield party
    party.close()


def text(words: str | bytes) -> bytes:
    raw = words.encode() if isinstance(words, str) else words
    return struct.pack(">H", len(raw)) + raw


def packet(kind: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, low = size >> 7, size & 0x7F
        length += bytes([low | (0x80 if size else 0)])
        if not size:
            return bytes([kind]) + length + body


def publish(topic: str | bytes, flags: int = QOS1, properties: bytes = b"", payload: bytes = b"evil") -> bytes:
    number = b"\0\1" if flags & (QOS1 | QOS2) else b""
    return packet(PUBLISH | flags, text(topic) + number + packet(0, properties)[1:] + payload)


class Thief:
    """A line to the broker with a member's certificate, on which anything can be said."""

    def __init__(self, fleet: Secured, version: int = V5, *, user: str = "", client: str = "x", keepalive: int = 60):
        plain = socket.create_connection(("127.0.0.1", fleet.port), PATIENCE)
        self.line = context(fleet.tls(ME)).wrap_socket(plain, server_hostname="127.0.0.1")
        protocol = "MQIsdp" if version & 0x7F == V31 else "MQTT"
        flags = 0x02 | (0xC0 if user else 0)
        properties = b"\0" if version & 0x7F == V5 else b""
        said = text(user) + text("whatever") if user else b""
        head = text(protocol) + bytes([version, flags]) + struct.pack(">H", keepalive) + properties
        self.say(packet(CONNECT, head + text(client) + said))

    def say(self, *packets: bytes) -> None:
        with suppress(OSError):  # it may hang up in the midst of it
            self.line.sendall(b"".join(packets))

    def hears(self) -> tuple[int, bytes]:
        """The kind of the next packet and its body; 0 where the broker has hung up."""
        try:
            kind = self.line.recv(1)
            if not kind:
                return 0, b""
            size = shift = 0
            while True:
                more = self.line.recv(1)[0]
                size |= (more & 0x7F) << shift
                shift += 7
                if more < 0x80:
                    break
            body = b""
            while len(body) < size:
                body += self.line.recv(size - len(body))
            return kind[0], body
        except (OSError, IndexError):
            return 0, b""

    def close(self) -> None:
        self.line.close()


TRICKS = {
    "an alias for a topic of another": [publish(FOREIGN, properties=bytes([ALIAS, 0, 1]))],
    "the same alias again, without its topic": [
        publish(FOREIGN, properties=bytes([ALIAS, 0, 1])),
        publish("", properties=bytes([ALIAS, 0, 1])),
    ],
    "an alias that nobody has made": [publish("", properties=bytes([ALIAS, 0, 9]))],
    "an alias of 0": [publish(FOREIGN, properties=bytes([ALIAS, 0, 0]))],
    "twice in one name": [publish(FOREIGN, QOS2), packet(PUBREL, b"\0\1")],
    "once only": [publish(FOREIGN, 0)],
    "a wildcard": [publish(topics.presence(FLEET, "+")), publish(f"{topics.ROOT}/{FLEET}/#")],
    "a group": [publish(f"$share/g/{FOREIGN}")],
    "a NUL behind one's own name": [publish(MINE + "\0/../pi-2")],
    "bytes that are no text": [publish(MINE.encode() + b"\xff\xfe")],
    "a surrogate": [publish(MINE.encode() + b"\xed\xa0\x80")],
    "an overlong slash": [publish(MINE.encode() + b"\xc0\xaf" + OTHER.encode())],
    "no topic at all": [publish("")],
    "a topic as long as there are": [publish("x" * 65_535)],
    "two hundred levels and more": [publish("/".join("x" * 1000))],
    "a packet that claims a quarter of a gigabyte": [bytes([PUBLISH | QOS1]) + b"\xff\xff\xff\x7f" + bytes(64)],
    "a length without end": [bytes([PUBLISH]) + b"\xff\xff\xff\xff\xff\xff"],
    "more than a packet may have": [publish(MINE, payload=bytes(LARGEST + 1))],
    "a second greeting": [packet(CONNECT, text("MQTT") + bytes([V5, 2, 0, 60, 0]) + text(OTHER))],
    "a kind that there is not": [packet(0x00, b""), packet(0xF0, b"\x19\0")],
    "an acknowledgement of nothing": [packet(PUBACK, b"\0\7"), packet(PUBREC, b"\0\7"), packet(PUBREL, b"\0\7")],
    "QoS 3": [publish(FOREIGN, QOS1 | QOS2)],
}


def last_word(fleet: Secured, **about: str | int) -> None:
    """What the thief says last, on a new line if it was cut off."""
    thief = Thief(fleet, **about)  # type: ignore[arg-type]  # whatever it is called with
    assert thief.hears()[0] == CONNACK
    thief.say(publish(MINE, payload=b"end"))
    assert thief.hears()[0] == PUBACK
    thief.close()


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_says_anything_in_another_s_name(fleet: Secured, coordinator: Party, trick: str) -> None:
    thief = Thief(fleet)
    assert thief.hears()[0] == CONNACK
    thief.say(*TRICKS[trick], packet(0xC0, b""))  # a ping behind it
    while thief.hears()[0] not in {0, 0xD0, DISCONNECT}:
        pass
    thief.close()
    last_word(fleet)
    assert coordinator.hears() == (MINE, b"end"), "nothing came before it"


@pytest.mark.parametrize(
    "about",
    [
        {"user": "coordinator"},
        {"user": OTHER, "client": OTHER},
        {"client": ""},
        {"client": "coordinator"},
        {"version": V311},
        {"version": V31},
        {"version": BRIDGE | V311, "client": "bridge"},
        {"version": BRIDGE | V5, "client": OTHER},
        {"keepalive": 65_535},
        {"keepalive": 0},
    ],
    ids=str,
)
def test_whatever_one_calls_oneself_the_certificate_says_who_one_is(
    fleet: Secured, coordinator: Party, about: dict[str, str | int]
) -> None:
    thief = Thief(fleet, **about)  # type: ignore[arg-type]  # as above
    if thief.hears()[0] == CONNACK:
        old = int(about.get("version", V5)) & 0x7F != V5
        said = [FOREIGN, topics.state(FLEET, JOB), topics.up(FLEET, JOB, OTHER), topics.down(FLEET, JOB, OTHER)]
        if old:  # no properties
            thief.say(*(packet(PUBLISH | QOS1 | RETAIN, text(topic) + b"\0\1evil") for topic in said))
        else:
            thief.say(*(publish(topic, QOS1 | RETAIN) for topic in said))
        thief.say(packet(0xC0, b""))
        while thief.hears()[0] not in {0, 0xD0}:
            pass
    thief.close()
    last_word(fleet)
    assert coordinator.hears() == (MINE, b"end"), "nothing came before it"


def test_what_stands_beside_a_message_leads_nowhere(fleet: Secured, coordinator: Party) -> None:
    """A topic for answers, properties of one's own and an expiry are passed on at most, and nobody here reads them."""
    many = b"".join(bytes([USER]) + text("x" * 1000) + text("y" * 1000) for _ in range(64))
    beside = bytes([RESPONSE_TOPIC]) + text(FOREIGN) + bytes([EXPIRY]) + struct.pack(">I", 1) + many
    thief = Thief(fleet)
    assert thief.hears()[0] == CONNACK
    thief.say(publish(MINE, properties=beside, payload=b"end"))
    assert thief.hears()[0] == PUBACK
    thief.close()
    assert coordinator.hears() == (MINE, b"end")


def test_handshakes_that_never_end_keep_nobody_out(fleet: Secured, coordinator: Party) -> None:
    """Lines that say nothing, half a greeting of TLS, or nothing after it; 300 of them."""
    hello = bytes.fromhex("160301") + struct.pack(">H", 512) + b"\x01"
    lines = [socket.create_connection(("127.0.0.1", fleet.port), PATIENCE) for _ in range(300)]
    for line in lines[::2]:
        line.sendall(hello)
    silent = context(fleet.tls(ME)).wrap_socket(
        socket.create_connection(("127.0.0.1", fleet.port), PATIENCE), server_hostname="127.0.0.1"
    )
    last_word(fleet)
    assert coordinator.hears() == (MINE, b"end")
    for line in (*lines, silent):
        line.close()


def test_nothing_can_be_said_before_the_handshake_has_ended(fleet: Secured) -> None:
    """Early data of TLS 1.3 could be played again; the broker takes none. Renegotiation 1.3 does not have."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl is not installed")
    files = fleet.tls(ME)
    command = [openssl, "s_client", "-connect", f"127.0.0.1:{fleet.port}", "-tls1_3", "-CAfile", str(files.ca)]
    command += ["-cert", str(files.certificate), "-key", str(files.key)]
    greeting = packet(CONNECT, text("MQTT") + bytes([V5, 2, 0, 60, 0]) + text("x"))
    done = subprocess.run(command, input=greeting, capture_output=True, timeout=PATIENCE, check=False)
    words = done.stdout.decode(errors="replace")
    assert "TLSv1.3" in words
    assert "Early data was not sent" in words
    assert all(line.strip() == "Max Early Data: 0" for line in words.splitlines() if "Max Early Data" in line)


def test_a_member_gets_in_by_tls_1_3_alone(fleet: Secured) -> None:
    older = context(fleet.tls(ME))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", fleet.port), PATIENCE) as plain,
        pytest.raises(ssl.SSLError),
        older.wrap_socket(plain, server_hostname="127.0.0.1"),
    ):
        pass
