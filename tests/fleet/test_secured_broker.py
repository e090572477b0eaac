"""The broker of a fleet, as it is generated: a real Mosquitto lets members in, keeps them apart and puts them out."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory, mkdtemp

import paho.mqtt.client as paho
import pytest
from certificates import Authority
from paho.mqtt.enums import CallbackAPIVersion
from secured_fleet import PATIENCE, Party, Secured, broker, context, make

from edgefl.base.errors import ConfigError
from edgefl.fleet import revocation
from edgefl.wire import topics
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.opening import admitted
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionMade, TransportEvent, Undelivered

OK, NOT_AUTHORIZED = 0x00, 0x87
NOBODY_LISTENS = 0x10  # a publish that was accepted, and that no one has subscribed to
FLEET, JOB = "default", "digits"

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        made = make(state, "pi-1", "pi-2", "pi-3", "pi-4")
        with broker(made):
            yield made


Join = Callable[..., Party]


@pytest.fixture
def join(fleet: Secured) -> Iterator[Join]:
    parties: list[Party] = []

    def start(name: str, client: str = "whatever", *, port: int | None = None) -> Party:
        parties.append(Party(port or fleet.port, fleet.tls(name), client))
        assert parties[-1].connected == OK
        return parties[-1]

    yield start
    for party in parties:
        party.close()


def test_a_device_speaks_on_its_own_topics_and_on_nobody_elses(join: Join) -> None:
    device = join("pi-1", "pi-2")  # the client id lies, the certificate does not
    assert device.publish(topics.up(FLEET, JOB, "pi-1")) == NOBODY_LISTENS
    assert device.publish(topics.presence(FLEET, "pi-1")) == NOBODY_LISTENS
    forbidden = (
        topics.up(FLEET, JOB, "pi-2"),
        topics.up("other", JOB, "pi-1"),
        topics.presence(FLEET, "pi-2"),
        topics.down(FLEET, JOB, "pi-1"),
        topics.state(FLEET, JOB),
        topics.manifest(FLEET, JOB, "abc"),
        topics.chunk(FLEET, JOB, "abc", 0),
    )
    assert [device.publish(topic) for topic in forbidden] == [NOT_AUTHORIZED] * len(forbidden)


def test_a_device_hears_what_is_for_it_or_for_all_and_nothing_else(join: Join) -> None:
    device, coordinator = join("pi-1"), join("coordinator")
    device.subscribe("#", topics.down(FLEET, JOB, "pi-2"))
    mine = [
        topics.state(FLEET, JOB),
        topics.manifest(FLEET, JOB, "abc"),
        topics.chunk(FLEET, JOB, "abc", 300),
        topics.down(FLEET, JOB, "pi-1"),
    ]
    others = [topics.down(FLEET, JOB, "pi-2"), topics.up(FLEET, JOB, "pi-2"), topics.presence(FLEET, "pi-2")]
    for topic in (*others, *mine):
        coordinator.publish(topic)
    heard = [device.hears() for _ in mine]  # the broker keeps the order: others' would have come first
    assert heard == [(topic, b"x") for topic in mine]


def test_the_coordinator_hears_every_device_and_speaks_to_each(join: Join) -> None:
    coordinator, devices = join("coordinator"), [join("pi-1"), join("pi-2")]
    coordinator.subscribe(topics.presence(FLEET, "+"), topics.up(FLEET, JOB, "+"))
    for name, device in zip(("pi-1", "pi-2"), devices, strict=True):
        device.subscribe(topics.down(FLEET, "+", name))
        assert device.publish(topics.up(FLEET, JOB, name)) == OK
        assert coordinator.hears() == (topics.up(FLEET, JOB, name), b"x")
        assert device.publish(topics.presence(FLEET, name)) == OK
        assert coordinator.hears() == (topics.presence(FLEET, name), b"x")
        assert coordinator.publish(topics.down(FLEET, JOB, name)) == OK
        assert device.hears() == (topics.down(FLEET, JOB, name), b"x")


def test_a_device_has_one_connection(join: Join) -> None:
    first = join("pi-1", "a")
    join("pi-1", "b")
    assert first.hears() == "disconnected"


def test_coordinators_of_several_runs_have_a_socket_that_only_the_owner_reaches(fleet: Secured, join: Join) -> None:
    device, events = join("pi-1"), [SimpleQueue[TransportEvent]() for _ in range(2)]
    device.subscribe(topics.down(FLEET, "+", "pi-1"))
    coordinators = [MqttTransport(fleet.fleet.folder.here, name) for name in ("one", "two")]
    for coordinator, told in zip(coordinators, events, strict=True):
        coordinator.start(told.put)
        assert told.get(timeout=PATIENCE) == ConnectionMade()
    for coordinator in coordinators:
        coordinator.publish(topics.down(FLEET, JOB, "pi-1"), b"x")
        assert device.hears() == (topics.down(FLEET, JOB, "pi-1"), b"x")
        coordinator.publish("somewhere/else", b"x")
    for coordinator, told in zip(coordinators, events, strict=True):
        assert told.get(timeout=PATIENCE) == Undelivered("somewhere/else", "Not authorized")
        coordinator.close()
    socket = fleet.fleet.folder.here.socket
    assert socket is not None
    assert stat.S_IMODE(socket.resolve().parent.stat().st_mode) == 0o700


def test_nobody_gets_in_without_a_certificate_of_this_fleet(fleet: Secured, tmp_path: Path) -> None:
    stranger = Authority.new(tmp_path).issue("pi-1")
    ca = fleet.tls("pi-1").ca
    for files in (Tls(ca=ca), Tls(ca=ca, certificate=stranger.certificate, key=stranger.key)):
        assert not answered(fleet.port, files)


def answered(port: int, files: Tls) -> list[object]:
    """What a broker says to somebody with these files."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.tls_set_context(context(files))
    answers: list[object] = []
    client.on_connect = lambda *said: answers.append(said)
    try:
        client.connect("127.0.0.1", port)
        while not answers and client.loop(PATIENCE) == paho.MQTT_ERR_SUCCESS:
            pass
    except OSError:  # with TLS 1.3 the refusal may come in the handshake, or with the first read
        pass
    finally:
        client.disconnect()
        client._reset_sockets()  # paho leaves them to the garbage collector
    return answers


def test_a_revoked_device_is_out_its_open_connection_included(fleet: Secured, join: Join) -> None:
    device, other = join("pi-3"), join("pi-2")
    device.subscribe(topics.state(FLEET, "+"))
    done = fleet.edgefl("fleet", "revoke", "pi-3")
    assert done.returncode == 0, done.stderr
    assert "'pi-3' is out" in done.stdout
    assert device.hears() == "disconnected"
    assert not answered(fleet.port, fleet.tls("pi-3"))
    assert other.publish(topics.presence(FLEET, "pi-2")) == NOBODY_LISTENS, "nobody else is disturbed"
    again = fleet.edgefl("fleet", "revoke", "pi-3")
    assert again.returncode == 0, "twice does no harm"
    assert "pi-3" in fleet.edgefl("fleet", "list").stdout


def test_two_revocations_in_the_same_second_both_count(fleet: Secured) -> None:
    for name in ("pi-5", "pi-6"):
        assert fleet.edgefl("fleet", "add", name, "--data", "digits").returncode == 0
    for name in ("pi-5", "pi-6"):
        assert revocation.revoke(fleet.fleet, name) == "out"


def test_a_broker_that_does_not_read_the_list_is_noticed(fleet: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "PATIENCE", 0.0)
    assert revocation.revoke(fleet.fleet, "pi-4", reload=lambda: False) == "still let in"
    monkeypatch.undo()
    assert revocation.revoke(fleet.fleet, "pi-4") == "out"


def test_a_device_with_new_keys_is_let_in_and_with_its_old_ones_it_is_not(fleet: Secured) -> None:
    old = fleet.tls("pi-1")
    old_pair = [path.read_bytes() for path in (old.certificate, old.key) if path]
    done = fleet.edgefl("fleet", "add", "pi-1", "--replace", "--data", "digits")
    assert done.returncode == 0, done.stderr
    for path, data in zip((old.certificate, old.key), old_pair, strict=True):
        assert path is not None
        path.write_bytes(data)
    assert revocation._let_in(fleet.address, fleet.fleet.folder.coordinator_tls()), "it runs"
    with pytest.raises(ConfigError, match="it may not accept our own certificate"):
        admitted(fleet.address, old)


def test_the_broker_s_key_is_nowhere_else_once_a_broker_that_was_killed_has_been_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, temporary = tmp_path / "state", Path(mkdtemp())  # the name of a socket has 107 letters at most
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("TMPDIR", str(temporary))
    secured = make(state)
    with broker(secured) as process:
        process.kill()
        process.wait()
    (left,) = temporary.iterdir()
    assert (left / "broker.key").exists(), "nobody could tidy up"
    with broker(secured):
        (home,) = temporary.iterdir()
        assert home != left
    temporary.rmdir()  # it is empty


def test_tmpdir_may_have_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path, "pi-1")
    with TemporaryDirectory(prefix="a folder ") as temporary:  # tmp_path is too long for a socket's path
        monkeypatch.setenv("TMPDIR", temporary)
        with broker(secured):
            assert Path(secured.fleet.folder.here.host).resolve().is_relative_to(temporary)
            admitted(secured.fleet.folder.here, Tls())
            admitted(secured.address, secured.tls("pi-1"))
