"""A member's certificate is good for its own name and nothing else, at the real Mosquitto of a secured fleet.

Whatever a member tries with the names of others: nothing of it reaches anybody, and nothing of others reaches it. What
must not come is known by what comes after it: a broker keeps the order of one sender's messages.
"""

import queue
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from certificates import Authority as Stranger
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from secured_fleet import PATIENCE, Secured, broker, context, make

from edgefl.base.errors import ConfigError
from edgefl.fleet.administration import DEVICE
from edgefl.fleet.authority import Authority, clock, key_pem, new_key
from edgefl.wire import topics
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionMade, TransportEvent

FLEET, JOB, ME, OTHER, THIRD = "default", "digits", "pi-1", "pi-2", "pi-3"
NOT_AUTHORIZED = 0x87
LASTS = 3600  # seconds that a session outlives its connection

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        secured = make(state, ME, OTHER, THIRD)
        with broker(secured):
            yield secured


class Client:
    """A client that may say whatever MQTT has words for."""

    def __init__(self, port: int, files: Tls, name: str, *, lasting: bool, will: Any) -> None:  # Any: paho's words
        self.told: queue.Queue[Any] = queue.Queue()  # what paho tells, of whatever type
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self.paho.on_connect = lambda _c, _u, flags, reason, _p: self.told.put((reason.value, flags.session_present))
        self.paho.on_disconnect = lambda *_: self.told.put("disconnected")
        self.paho.on_subscribe = lambda *_: self.told.put("subscribed")
        self.paho.on_publish = lambda _c, _u, _m, reason, _p: self.told.put(reason.value)
        self.paho.on_message = lambda _c, _u, message: self.told.put((message.topic, message.payload))
        self.paho.tls_set_context(context(files))
        self.paho.reconnect_delay_set(60, 60)
        if will:
            self.paho.will_set(**will)
        keeps = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
        keeps.SessionExpiryInterval = LASTS if lasting else 0
        self.paho.connect("127.0.0.1", port, clean_start=not lasting, properties=keeps)
        self.paho.loop_start()
        self.connected = self.told.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> Any:
        self.paho.publish(topic, payload, qos=1, retain=retain)
        return self.told.get(timeout=PATIENCE)

    def subscribe(self, *filters: str) -> None:
        self.paho.subscribe([(each, 1) for each in filters])
        assert self.told.get(timeout=PATIENCE) == "subscribed"

    def hears(self) -> Any:
        return self.told.get(timeout=PATIENCE)

    def vanish(self) -> None:
        """Without a word, so that the will is said."""
        sock = self.paho.socket()
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)
        assert self.hears() == "disconnected"

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()
        self.paho._reset_sockets()  # paho leaves them to the garbage collector


Join = Callable[..., Client]


@pytest.fixture
def join(fleet: Secured) -> Iterator[Join]:
    clients: list[Client] = []

    def start(name: str, as_: str = "", *, port: int = 0, lasting: bool = False, **will: Any) -> Client:
        clients.append(Client(port or fleet.port, fleet.tls(name), as_ or name, lasting=lasting, will=will))
        assert clients[-1].connected[0] == 0
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def foreign(name: str) -> list[str]:
    """Topics that are not this member's to write: those of another one, of the coordinator and of the broker."""
    return [
        topics.up(FLEET, JOB, OTHER),
        topics.presence(FLEET, OTHER),
        topics.down(FLEET, JOB, OTHER),
        topics.down(FLEET, JOB, name),
        topics.state(FLEET, JOB),
        topics.manifest(FLEET, JOB, "abc"),
        topics.chunk(FLEET, JOB, "abc", 0),
        f"{topics.ROOT}/{FLEET}/doctor/{OTHER}",
        f"{topics.ROOT}/{FLEET}/presence/{name}/more",
        topics.up("other", JOB, name),
        "$SYS/broker/version",
        "edgefl",
    ]


@pytest.mark.parametrize("retain", [False, True], ids=["said", "retained"])
def test_nothing_can_be_said_in_another_s_name(join: Join, retain: bool) -> None:
    coordinator, other, thief = join("coordinator"), join(OTHER), join(ME, OTHER)
    coordinator.subscribe(f"{topics.ROOT}/#")
    other.subscribe("#")
    codes = [thief.publish(topic, retain=retain) for topic in foreign(ME)]
    assert codes == [NOT_AUTHORIZED] * len(codes)
    assert thief.publish(topics.presence(FLEET, ME), b"end") == 0
    assert coordinator.hears() == (topics.presence(FLEET, ME), b"end"), "nothing came before it"
    coordinator.publish(topics.down(FLEET, JOB, OTHER), b"end")
    assert other.hears() == (topics.down(FLEET, JOB, OTHER), b"end")
    late = join(THIRD)
    late.subscribe(topics.state(FLEET, "+"), f"{topics.ROOT}/{FLEET}/+/model/#", topics.down(FLEET, JOB, THIRD))
    coordinator.publish(topics.down(FLEET, JOB, THIRD), b"end")
    assert late.hears() == (topics.down(FLEET, JOB, THIRD), b"end"), "nothing was retained"


@pytest.mark.parametrize(
    "filter",
    [
        "#",
        "+/#",
        "$SYS/#",
        "$SYS/broker/clients/connected",
        f"{topics.ROOT}/+/+/dev/+/up",
        f"$share/group/{topics.ROOT}/#",
        f"$share/group/{topics.up(FLEET, '+', '+')}",
        f"$share/group/{topics.presence(FLEET, '+')}",
        topics.down(FLEET, "+", OTHER),
        topics.presence(FLEET, "+"),
        f"{topics.ROOT}/{FLEET}/doctor/+",
    ],
)
def test_nothing_of_others_is_heard_whatever_is_subscribed_to(join: Join, filter: str) -> None:
    """A shared subscription also takes messages away from others; a member is in no group of theirs."""
    thief, other, coordinator = join(ME), join(OTHER), join("coordinator")
    coordinator.subscribe(topics.up(FLEET, "+", "+"), topics.presence(FLEET, "+"))
    thief.subscribe(filter, topics.down(FLEET, JOB, ME))
    for topic in (topics.up(FLEET, JOB, OTHER), topics.presence(FLEET, OTHER)):
        assert other.publish(topic, b"secret", retain="presence" in topic) == 0
        assert coordinator.hears() == (topic, b"secret"), "it is not taken away either"
    coordinator.publish(topics.down(FLEET, JOB, OTHER), b"secret")
    coordinator.publish(topics.down(FLEET, JOB, ME), b"end")
    assert thief.hears() == (topics.down(FLEET, JOB, ME), b"end")
    other.publish(topics.presence(FLEET, OTHER), b"", retain=True)


@pytest.mark.parametrize(
    "topic", [topics.presence(FLEET, OTHER), topics.state(FLEET, JOB), topics.up(FLEET, JOB, OTHER), "$SYS/x"]
)
def test_a_last_will_in_another_s_name_is_not_said(join: Join, topic: str) -> None:
    coordinator, witness = join("coordinator"), join(THIRD)
    coordinator.subscribe(f"{topics.ROOT}/#")
    join(ME, topic=topic, payload=b"gone", qos=1, retain=True).vanish()
    witness.publish(topics.presence(FLEET, THIRD), b"end")
    assert coordinator.hears() == (topics.presence(FLEET, THIRD), b"end")
    again = join(ME, topic=topics.presence(FLEET, ME), payload=b"gone", qos=1)
    again.vanish()
    assert coordinator.hears() == (topics.presence(FLEET, ME), b"gone"), "its own is"


def test_another_s_client_id_does_not_give_what_waits_in_its_session(join: Join) -> None:
    join(OTHER).close()  # nothing waits from before
    victim = join(OTHER, lasting=True)
    victim.subscribe(topics.down(FLEET, JOB, OTHER))
    victim.vanish()
    coordinator = join("coordinator")
    coordinator.publish(topics.down(FLEET, JOB, OTHER), b"secret")
    thief = join(ME, OTHER, lasting=True)
    thief.subscribe(topics.state(FLEET, "+"))
    coordinator.publish(topics.state(FLEET, JOB), b"end")
    assert thief.hears() == (topics.state(FLEET, JOB), b"end")


def test_a_member_cannot_take_over_the_connection_of_a_coordinator_or_of_another(fleet: Secured, join: Join) -> None:
    """They share client ids with it, but no port: a member is known by its certificate alone."""
    told, other = queue.SimpleQueue[TransportEvent](), join(OTHER)
    coordinator = MqttTransport(fleet.fleet.folder.here, "a-run")
    coordinator.start(told.put)
    assert told.get(timeout=PATIENCE) == ConnectionMade()
    other.subscribe(topics.down(FLEET, JOB, OTHER))
    for client in ("a-run", OTHER):
        join(ME, client)
        assert not accepted(fleet.port + 1, context(fleet.tls(ME))), "where coordinators once came over TLS"
    coordinator.publish(topics.down(FLEET, JOB, OTHER), b"still here")
    assert other.hears() == (topics.down(FLEET, JOB, OTHER), b"still here")
    coordinator.close()
    assert told.empty(), "it was never disconnected"


def test_no_device_can_be_called_what_a_coordinator_is_called_at_the_broker(fleet: Secured) -> None:
    with pytest.raises(ConfigError, match="the coordinator's own name"):
        fleet.fleet.add("coordinator", clock())


# ---- who has no certificate of the fleet -----------------------------------------------------------------------------


def self_signed(folder: Path, name: str) -> Tls:
    """A certificate with the right name that somebody made for himself, from a CA that is called as ours is."""
    key, ca = new_key(), Authority.new(FLEET, clock())
    place = folder / "self"
    for suffix, data in ((".crt", ca.client(name, key.public_key(), clock(), DEVICE).pem), (".key", key_pem(key))):
        place.with_suffix(suffix).touch(mode=0o600)
        place.with_suffix(suffix).write_bytes(data)
    return Tls(certificate=place.with_suffix(".crt"), key=place.with_suffix(".key"))


def outdated(fleet: Secured, folder: Path, name: str) -> Tls:
    """A certificate of the fleet's own authority that has ended."""
    key, place = new_key(), folder / "old"
    pem = fleet.fleet.authority.client(name, key.public_key(), clock() - timedelta(days=91), DEVICE).pem
    for suffix, data in ((".crt", pem), (".key", key_pem(key))):
        place.with_suffix(suffix).touch(mode=0o600)
        place.with_suffix(suffix).write_bytes(data)
    return Tls(certificate=place.with_suffix(".crt"), key=place.with_suffix(".key"))


def of_the_broker(fleet: Secured) -> Tls:
    folder = fleet.fleet.folder.broker
    return Tls(certificate=folder / "broker.crt", key=folder / "broker.key")


@pytest.mark.parametrize("who", ["nobody", "another authority", "self-signed", "ended", "the broker's own", "TLS 1.2"])
def test_without_a_valid_certificate_of_this_fleet_nobody_is_let_in(fleet: Secured, tmp_path: Path, who: str) -> None:
    ca = fleet.tls(ME).ca
    stranger = Stranger.new(tmp_path).issue(ME)
    files = {
        "nobody": Tls(),
        "another authority": Tls(certificate=stranger.certificate, key=stranger.key),
        "self-signed": self_signed(tmp_path, ME),
        "ended": outdated(fleet, tmp_path, ME),
        "the broker's own": of_the_broker(fleet),  # it is for a server
        "TLS 1.2": fleet.tls(ME),
    }[who].model_copy(update={"ca": ca})
    secured = context(files)
    if who == "TLS 1.2":
        secured.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not accepted(fleet.port, secured)
    assert accepted(fleet.port, context(fleet.tls(ME))), "what the others are measured against"


def accepted(port: int, secured: ssl.SSLContext) -> bool:
    """Whether a broker answers a CONNECT, written by hand, with anything at all."""
    hello = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x03abc"
    try:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            secured.wrap_socket(plain, server_hostname="127.0.0.1") as line,
        ):
            line.sendall(hello)
            return bool(line.recv(4))
    except OSError:
        return False


def test_without_tls_nobody_is_answered(fleet: Secured) -> None:
    with socket.create_connection(("127.0.0.1", fleet.port), PATIENCE) as plain:
        plain.sendall(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x03abc")
        try:
            answer = plain.recv(64)
        except OSError:
            answer = b""
    assert answer[:1] != b"\x20", "no CONNACK; an alert of TLS may be"
