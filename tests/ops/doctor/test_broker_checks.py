"""The way to a real Mosquitto, step by step, and what is said where it ends."""

import socket
import ssl

import pytest
from certificates import DAY, LASTING, NOW, Authority, mosquitto

from edgefl.fleet.members import Member
from edgefl.fleet.mosquitto import acl
from edgefl.ops.doctor import network
from edgefl.ops.doctor.certificates import dated, own
from edgefl.ops.doctor.network import LARGEST, broker, program
from edgefl.wire import broker as brokers
from edgefl.wire.address import Address
from edgefl.wire.mqtt import tls_context
from edgefl.wire.signing import Signer
from edgefl.wire.tls import Tls

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _installed() -> None:
    if brokers.find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")


def looked(port, *, user=None, password=None, who="pi-1", scheme="mqtt", **files):
    """What was found, by what was looked at."""
    address = Address(scheme, "127.0.0.1", port, user, password)
    return {f.what: f for f in broker(address, Tls(**files), who, "default")}


def levels(findings):
    return {what: finding.level for what, finding in findings.items()}


def test_with_an_open_broker_everything_is_fine(tmp_path):
    with mosquitto(tmp_path, "allow_anonymous true", f"max_packet_size {1 << 20}") as port:
        findings = looked(port)
    assert levels(findings) == dict.fromkeys(["broker", "login", "message", "packets"], "ok")
    assert "1,048,576" in findings["packets"].text


def test_a_broker_that_is_not_there_is_told_with_its_remedy():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        findings = looked(bound.getsockname()[1])
    assert levels(findings) == {"broker": "wrong"}
    assert "connection refused" in findings["broker"].text
    assert "edgefl broker start" in findings["broker"].remedy


def test_something_that_is_no_broker_is_told_from_a_refusal(monkeypatch):
    monkeypatch.setattr("edgefl.ops.doctor.broker_probe.PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        findings = looked(silent.getsockname()[1])
    assert levels(findings) == {"broker": "ok", "login": "wrong"}
    assert "no answer" in findings["login"].text


@pytest.mark.parametrize(("password", "level"), [("sesame", "ok"), ("open", "wrong"), (None, "wrong")])
def test_a_wrong_password_is_told_and_never_shown(password, level):
    with brokers.start(prefer="mosquitto", users={"pi-1": "sesame"}) as running:
        findings = looked(running.address.port, user="pi-1", password=password)
    assert findings["login"].level == level
    assert "sesame" not in str(findings)
    assert level == "ok" or "EDGEFL_MQTT_PASSWORD" in findings["login"].remedy


def test_a_broker_that_takes_no_chunk_is_wrong(tmp_path):
    with mosquitto(tmp_path, "allow_anonymous true", "max_packet_size 65536") as port:
        findings = looked(port)
    assert findings["packets"].level == "wrong"
    assert "65,536" in findings["packets"].text
    assert f"{LARGEST:,}" in findings["packets"].text
    assert "max_packet_size" in findings["packets"].remedy


def test_our_acl_lets_a_device_and_the_coordinator_talk_to_themselves(tmp_path):
    with _with_acl(tmp_path, acl("default", {"pi-1": Member.model_construct(site="", hosts=())})) as port:
        for user in ("pi-1", "coordinator"):
            assert looked(port, user=user, who=user)["message"].level == "ok"
        assert looked(port, user="pi-1", who="pi-2")["message"].level == "warning"


def test_an_acl_of_another_kind_is_a_warning_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.ops.doctor.broker_probe.PATIENCE", 1.0)
    with _with_acl(tmp_path, "user pi-1\ntopic readwrite other/#\n") as port:
        finding = looked(port, user="pi-1")["message"]
    assert finding.level == "warning"
    assert "Not authorized" in finding.text


def _with_acl(folder, text):
    (folder / "acl").write_text(text)
    (folder / "acl").chmod(0o600)
    # Without a password file a name is believed, which is all this test needs.
    return mosquitto(folder, "allow_anonymous true", f"acl_file {folder / 'acl'}")


# ---- TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path):
    return Authority.new(tmp_path, dates=LASTING)


def over_tls(folder, server, *more, version="tlsv1.3"):
    lines = (f"cafile {server.ca}", f"certfile {server.certificate}", f"keyfile {server.key}", "allow_anonymous true")
    return mosquitto(folder, *lines, f"tls_version {version}", *more)


def test_a_good_certificate_is_told_with_its_dates(tmp_path, authority):
    with over_tls(tmp_path, authority.issue("server", LASTING)) as port:
        findings = looked(port, scheme="mqtts", ca=authority.path)
    assert set(levels(findings).values()) == {"ok"}
    assert f"until {NOW + 90 * DAY:%Y-%m-%d}" in findings["TLS"].text


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [((-9, -2), "wrong", "has expired"), ((2, 9), "wrong", "is not yet valid"), ((-9, 2), "warning", "ends soon")],
)
def test_the_dates_of_the_broker_s_certificate_are_named(tmp_path, authority, days, level, words):
    since, until = (NOW + day * DAY for day in days)
    with over_tls(tmp_path, authority.issue("server", (since, until))) as port:
        finding = looked(port, scheme="mqtts", ca=authority.path)["TLS"]
    assert finding.level == level
    assert words in finding.text
    assert f"{since:%Y-%m-%d}" in finding.text
    assert f"{until:%Y-%m-%d}" in finding.text
    assert level != "wrong" or f"the clock here says {NOW:%Y-%m}" in finding.text


def test_a_certificate_of_a_stranger_is_refused_with_the_reason(tmp_path, authority):
    with over_tls(tmp_path, authority.issue("server", LASTING)) as port:
        finding = looked(port, scheme="mqtts", ca=Authority.new(tmp_path / "other", "other").path)["TLS"]
    assert finding.level == "wrong"
    assert "does not vouch for" in finding.text
    assert "tls.ca" in finding.remedy


def test_a_plain_port_is_no_tls(tmp_path, authority):
    with mosquitto(tmp_path, "allow_anonymous true") as port:
        findings = looked(port, scheme="mqtts", ca=authority.path)
    assert levels(findings) == {"broker": "ok", "TLS": "wrong"}


def test_a_broker_that_asks_for_our_certificate_is_shown_it_or_refuses(tmp_path, authority):
    server, mine = authority.issue("server", LASTING), authority.issue("pi-1", LASTING)
    with over_tls(tmp_path, server, "require_certificate true") as port:
        with_it = looked(port, scheme="mqtts", ca=mine.ca, certificate=mine.certificate, key=mine.key)
        without = looked(port, scheme="mqtts", ca=authority.path)
    assert with_it["login"].level == "ok"
    assert without["login"].level == "wrong"


def test_our_own_certificate_is_looked_at_before_the_broker_sees_it(tmp_path, authority):
    good = authority.issue("pi-1", LASTING).certificate
    assert own(good, "agent.tls.certificate", NOW).level == "ok"
    assert "has expired" in own(good, "agent.tls.certificate", NOW + 100 * DAY).text
    assert own(tmp_path / "none.crt", "agent.tls.certificate", NOW).level == "wrong"
    assert "not a certificate" in dated("certificate", "x", b"rubbish", NOW).text


# ---- a broker of our own -------------------------------------------------------------------------------------------


def test_mosquitto_is_found_or_what_to_install_is_told(monkeypatch):
    assert program(needed=True).level == "ok"
    monkeypatch.setattr(network, "find_mosquitto", lambda: None)
    monkeypatch.setattr(network.brokers, "has_iotcore", lambda: False)
    assert [program(needed=n).level for n in (True, False)] == ["wrong", "warning"]
    assert "apt install mosquitto" in program(needed=True).remedy


def test_an_older_tls_is_told(tmp_path, authority, monkeypatch):
    def older(*files):
        context = tls_context(*files)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    monkeypatch.setattr(network, "tls_context", older)  # as if the broker had nothing newer
    with over_tls(tmp_path, authority.issue("server", LASTING), version="tlsv1.2") as port:
        findings = looked(port, scheme="mqtts", ca=authority.path)
    assert findings["TLS version"].level == "warning"
    assert "TLSv1.2" in findings["TLS version"].text
    assert "tlsv1.3" in findings["TLS version"].remedy


def test_an_older_tls_beside_the_new_one_is_told_too(tmp_path, authority):
    with over_tls(tmp_path, authority.issue("server", LASTING), version="tlsv1.2") as port:
        findings = looked(port, scheme="mqtts", ca=authority.path)
    assert "TLSv1.3" in findings["TLS"].text
    assert findings["TLS version"].text == "the broker speaks TLS 1.2 with clients that ask for it"


def test_a_broker_that_lets_devices_read_each_other_is_told(tmp_path, authority):
    server, mine = authority.issue("server", LASTING), authority.issue("pi-1", LASTING)
    files = {"ca": authority.path, "certificate": mine.certificate, "key": mine.key}
    named = "require_certificate true", "use_identity_as_username true"
    with over_tls(tmp_path, server, *named) as port:
        assert "lines of its own" in looked(port, scheme="mqtts", **files)["ACL"].remedy
        assert "ACL" not in looked(port, who="coordinator", scheme="mqtts", **files), "it may"
    (tmp_path / "strict").mkdir()
    rules = tmp_path / "strict" / "acl"
    rules.write_text(acl("default", {"pi-1": Member(key=Signer.new().key, added=NOW)}))
    rules.chmod(0o600)
    with over_tls(tmp_path / "strict", server, *named, f"acl_file {rules}") as port:
        assert set(levels(looked(port, scheme="mqtts", **files)).values()) == {"ok"}


def test_a_broker_that_lets_anybody_in_although_we_prove_who_we_are_is_told(tmp_path, authority):
    server, mine = authority.issue("server", LASTING), authority.issue("pi-1", LASTING)
    files = {"ca": authority.path, "certificate": mine.certificate, "key": mine.key}
    with over_tls(tmp_path, server) as port:
        assert looked(port, scheme="mqtts", **files)["anonymous"].level == "warning"
    (tmp_path / "strict").mkdir()
    with over_tls(tmp_path / "strict", server, "require_certificate true") as port:
        assert "anonymous" not in looked(port, scheme="mqtts", **files)
