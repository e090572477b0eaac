"""Bad certificates, on either side of a real broker: one line that says which, its dates, the clock, and the remedy."""

import os
import queue
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import EXPIRED, NOT_YET, VALID, Authority, Dates, mosquitto, shown

from edgefl.base.errors import ConfigError
from edgefl.system.processes import Child
from edgefl.wire import broker as brokers
from edgefl.wire.address import Address, BrokerAway, reachable
from edgefl.wire.broker import find_mosquitto
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.opening import admitted
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionLost, ConnectionMade, TransportEvent

pytestmark = pytest.mark.broker
PATIENCE = 20.0
CLOCK = r"and the clock here says \d{4}-\d\d-\d\d \d\d:\d\d UTC"

Serve = Callable[..., Address]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a Mosquitto that shows this certificate; a second one takes the place of the first, on the same port."""
    program = find_mosquitto()
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running: list[Child] = []

    def start(server: Tls, *, clients: Path | None = None, version: str = "tlsv1.3") -> Address:
        while running:
            running.pop().stop()
        lines = [f"listener {port} 127.0.0.1", f"certfile {server.certificate}", f"keyfile {server.key}"]
        lines += [f"tls_version {version}", "allow_anonymous true"]
        lines += [f"cafile {clients}", "require_certificate true"] if clients else []
        lines += (
            ["user root"] if os.geteuid() == 0 else []
        )  # or it becomes `mosquitto`, who cannot read a test's folder
        (tmp_path / "broker.conf").write_text("\n".join(lines) + "\n")
        child = Child([program, "-c", str(tmp_path / "broker.conf")], tmp_path / "broker.log")
        running.append(child)
        address, until = Address("mqtts", "127.0.0.1", port), time.monotonic() + PATIENCE
        while time.monotonic() < until and not child.gone.wait(0.01):
            with suppress(ConfigError):
                reachable(address)
                return address
        return pytest.fail(f"the broker did not start: {child.last_words()}")

    yield start
    for child in running:
        child.stop()


def why(address: Address, tls: Tls) -> str:
    """What an operator is told at the start of a coordinator."""
    with pytest.raises(ConfigError) as told:
        admitted(address, tls)
    text = str(told.value)
    assert "\n" not in text
    assert isinstance(told.value, BrokerAway) == ("clock here says" in text), "only a date may become right by itself"
    assert text.startswith(f"broker {address}: ")
    return text.removeprefix(f"broker {address}: ")


def span(dates: Dates) -> str:
    return f"it is valid from {shown(dates[0])} until {shown(dates[1])}, "


WRONG_DATES = {
    "expired": (EXPIRED, "has expired", r"renew it, or set this clock right \(timedatectl\)"),
    "not yet valid": (NOT_YET, "is not yet valid", r"set this clock right \(timedatectl\), or make it anew"),
}


@pytest.mark.parametrize("kind", WRONG_DATES)
def test_the_dates_of_the_brokers_certificate(kind: str, serve: Serve, tmp_path: Path):
    dates, wrong, remedy = WRONG_DATES[kind]
    authority = Authority.new(tmp_path)
    address = serve(authority.issue("server", dates))
    told = why(address, Tls(ca=authority.path))
    assert re.fullmatch(rf"the broker's certificate \(CN=server\) {wrong}: {span(dates)}{CLOCK}: {remedy}", told), told


@pytest.mark.parametrize("kind", WRONG_DATES)
def test_the_dates_of_the_authority(kind: str, serve: Serve, tmp_path: Path):
    dates, wrong, remedy = WRONG_DATES[kind]
    authority = Authority.new(tmp_path, dates=dates)
    address = serve(authority.issue("server"))
    told, who = why(address, Tls(ca=authority.path)), re.escape(f"the CA's certificate {authority.path} (CN=edgefl CA)")
    assert re.fullmatch(rf"{who} {wrong}: {span(dates)}{CLOCK}: {remedy}", told), told


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
@pytest.mark.parametrize("kind", WRONG_DATES)
def test_the_dates_of_our_own_certificate(kind: str, version: str, serve: Serve, tmp_path: Path):
    dates, wrong, remedy = WRONG_DATES[kind]
    authority = Authority.new(tmp_path)
    address = serve(authority.issue("server"), clients=authority.path, version=version)
    ours = authority.issue("pi-01", dates)
    told, who = why(address, ours), re.escape(f"our own certificate {ours.certificate}")
    assert re.fullmatch(rf"{who} {wrong}: {span(dates)}{CLOCK}: {remedy}", told), told


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_our_own_certificate_of_a_ca_that_the_broker_does_not_know(version: str, serve: Serve, tmp_path: Path):
    authority, stranger = Authority.new(tmp_path), Authority.new(tmp_path / "other", "other CA")
    address = serve(authority.issue("server"), clients=authority.path, version=version)
    ours = stranger.issue("pi-01").model_copy(update={"ca": authority.path})
    told = why(address, ours)
    assert f"it may not accept our own certificate {ours.certificate} (CN=pi-01, valid from {shown(VALID[0])}" in told
    remedy = "use one of the CA that the broker trusts, or a new kit if this device was revoked; its log says more"
    assert told.endswith(f"issued by CN=other CA): {remedy}")


def test_a_certificate_for_another_name(serve: Serve, tmp_path: Path):
    authority = Authority.new(tmp_path)
    address = serve(authority.issue("server", names=("server.local", "10.1.2.3")))
    assert why(address, Tls(ca=authority.path)) == (
        "the broker's certificate (CN=server) is for server.local and 10.1.2.3, not for 127.0.0.1: write the name it is"
        " for in the broker's address, or make it anew with this one (subjectAltName)"
    )


def test_a_certificate_of_a_ca_we_do_not_know(serve: Serve, tmp_path: Path):
    authority, stranger = Authority.new(tmp_path), Authority.new(tmp_path / "other", "other CA")
    address = serve(stranger.issue("server"))
    who = "the broker's certificate (CN=server) was issued by CN=other CA, which"
    remedy = "give the CA that issued it as tls.ca"
    assert why(address, Tls(ca=authority.path)) == f"{who} {authority.path} does not vouch for: {remedy}"
    assert why(address, Tls()) == f"{who} this system does not vouch for: {remedy}"


def test_good_certificates_are_let_in(serve: Serve, tmp_path: Path):
    authority = Authority.new(tmp_path)
    admitted(serve(authority.issue("server"), clients=authority.path), authority.issue("pi-01"))


@pytest.mark.parametrize("whose", ["the broker's", "our own"])
def test_who_keeps_trying_gets_in_when_the_certificate_is_renewed(whose: str, serve: Serve, tmp_path: Path):
    """As when a clock is set right: without a restart, and with the files as they are now."""
    authority = Authority.new(tmp_path)
    theirs, mine = (NOT_YET, VALID) if whose == "the broker's" else (VALID, NOT_YET)
    address = serve(authority.issue("server", theirs), clients=authority.path)
    told: queue.Queue[TransportEvent] = queue.Queue()
    transport = MqttTransport(address, "pi-01", tls=authority.issue("pi-01", mine))
    transport.start(told.put)
    try:
        first = told.get(timeout=PATIENCE)
        assert isinstance(first, ConnectionLost)
        assert first.reason.startswith(whose)
        authority.issue("pi-01")
        serve(authority.issue("server"), clients=authority.path)
        while (event := told.get(timeout=PATIENCE)) != ConnectionMade():
            assert isinstance(event, ConnectionLost)
    finally:
        transport.close()


def edgefl(*words: str, cwd: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "edgefl", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)
    return done.returncode, done.stderr


@pytest.mark.night
def test_the_commands_say_it_in_one_line_and_only_the_coordinator_waits_for_another_date(serve: Serve, tmp_path: Path):
    authority = Authority.new(tmp_path)
    address = serve(authority.issue("server", EXPIRED))
    broker = f'url = "{address}"\ntls = {{ ca = "ca.crt" }}\n'
    (tmp_path / "run.toml").write_text(f"[rounds]\ncohort = 1\n[broker]\n{broker}")
    device = f'[agent]\nid = "pi-01"\nfolder = "state"\nconnect_timeout = 5\nbroker = "{address}"\n'
    (tmp_path / "agent.toml").write_text(f'{device}tls = {{ ca = "ca.crt" }}\n[data]\nsource = "synthetic"\n')
    why = rf"the broker's certificate \(CN=server\) has expired: {span(EXPIRED)}{CLOCK}"
    command = [sys.executable, "-m", "edgefl", "coordinator", "start", "run.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            waits = "edgefl: waiting for the broker, Ctrl-C ends it"
            assert re.match(rf"{waits}: broker {address}: {why}: renew it, or", said), said
            serve(authority.issue("server"))
            assert any(line.startswith("edgefl: the broker is there") for line in process.stderr)
        finally:
            process.kill()
    serve(authority.issue("server", EXPIRED))
    code, said = edgefl("agent", "start", "agent.toml", "--log", "error", cwd=tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert re.match(rf"edgefl: broker {address} is not reachable \({why}\): renew it, or set this clock", said), said


def test_our_transport_trusts_a_ca_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Passwords over TLS, at a broker that is not ours."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    authority = Authority.new(tmp_path)
    server = authority.issue("server")
    passwd = tmp_path / "passwd"
    passwd.touch(mode=0o600)
    passwd.write_text(f"pi-1:{brokers._hashed('one')}\n")
    lines = [f"certfile {server.certificate}", f"keyfile {server.key}", f"password_file {passwd}"]
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    with mosquitto(tmp_path, *lines, "allow_anonymous false") as port:
        admitted(Address("mqtts", "127.0.0.1", port, "pi-1", "one"), Tls())
        with pytest.raises(ConfigError, match="the broker refused"):
            admitted(Address("mqtts", "127.0.0.1", port, "pi-1", "two"), Tls())
