"""Members, kits and certificates: what they say, what is refused, and whom a coordinator hears."""

import json
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from fleets import run_file
from secured_fleet import Secured, make, started

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.fleet_broker import fleet_of, located
from device_agent import enrol
from edgefl.base.errors import ConfigError
from edgefl.fleet import kit as kits
from edgefl.fleet import members
from edgefl.fleet.administration import DEVICE, FleetAdministration
from edgefl.fleet.authority import check_host, clock, new_key, request, requested_key
from edgefl.fleet.members import MembersFile, device_names
from edgefl.fleet.mosquitto import CERTIFICATE, REVOKED
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load
from edgefl.wire.address import parse
from edgefl.wire.exposure import check, exposed
from edgefl.wire.signing import Signer
from edgefl.wire.tls import Tls

DAY = timedelta(days=1)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-01", "pi-02")


def test_everything_of_a_fleet_is_its_owners_alone(secured: Secured) -> None:
    folder = secured.fleet.folder.path
    assert [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077] == []


def test_a_kit_survives_its_file_and_nothing_else_is_one(secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "pi-01.kit"
    kits.write(secured.kits["pi-01"], path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert kits.read(path) == secured.kits["pi-01"]
    good = json.loads(path.read_text())
    for wrong in (
        {**good, "version": 2},
        {**good, "name": "../x"},
        {**good, "name": "coordinator"},
        {**good, "broker": "mqtt://server.local"},
        {**good, "coordinator": "ed25519:x"},
        {**good, "key": "rm -rf /"},
        {**good, "more": 1},
        {},
    ):
        path.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match="not a kit that this version of edgefl can read"):
            kits.read(path)
    path.write_bytes(b" " * (kits.LIMIT + 1))
    with pytest.raises(ConfigError, match="larger than 64 KiB, so it is no kit"):
        kits.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        kits.read(tmp_path / "absent.kit")


def test_an_installed_kit_is_an_agent_file_and_a_second_one_keeps_its_data(secured: Secured, tmp_path: Path) -> None:
    kit, home = secured.kits["pi-01"], tmp_path / "device"
    with pytest.raises(ConfigError, match="names no data: give --data"):
        enrol.install(kit, home)
    path = enrol.install(kit, home, "npz:/data/x.npz")
    file = load(AgentFile, path, environment={})
    assert (file.agent.id, file.agent.broker, file.agent.coordinator) == (kit.name, kit.broker, kit.coordinator)
    assert exposed(parse("mqtts://server.local"), file.agent.tls) is None
    context = ssl.create_default_context(cafile=file.agent.tls.ca)
    context.load_cert_chain(file.agent.tls.certificate or "", file.agent.tls.key)
    (home / "pi-01" / "tls.pem").write_text("renewed")
    enrol.install(kit, home)
    assert (home / "pi-01" / "tls.pem").read_text() == "renewed", "the same kit once more"
    renewed = secured.fleet.add("pi-01", clock(), replace=True)
    assert load(AgentFile, enrol.install(renewed, home), environment={}).data.source == "npz:/data/x.npz"
    assert (home / "pi-01" / "tls.pem").read_text() == renewed.key + renewed.certificate


def test_names_may_be_as_long_as_in_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kit = FleetAdministration.new("f" * 64, ["localhost"], 8883, clock()).add("d" * 64, clock())
    assert (kit.fleet, kit.name) == ("f" * 64, "d" * 64)


def test_a_kit_chooses_no_code_for_the_data_of_its_device(secured: Secured, tmp_path: Path) -> None:
    kit = secured.kits["pi-01"].model_copy(update={"data": {"source": "os:abort"}})
    with pytest.raises(ConfigError, match="a kit may not choose that"):
        enrol.install(kit, tmp_path / "device")
    path = enrol.install(kit, tmp_path / "device", "mine:data")
    assert load(AgentFile, path, environment={}).data.source == "mine:data"


def test_data_that_were_named_from_a_folder_are_found_from_any_other(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "log.csv").touch()
    (tmp_path / "agent.toml").write_text('[data]\nsource = "csv:log.csv"\nwindow = 4\n')
    monkeypatch.chdir(tmp_path / "here")

    def installed(data: str | None, beside: Path | None) -> str:
        path = enrol.install(secured.kits["pi-01"], tmp_path / "device", data, beside)
        return load(AgentFile, path, environment={}).data.source

    beside = Path("..", "agent.toml")
    assert Path(installed(None, beside).removeprefix("csv:")).samefile(tmp_path / "log.csv")
    (tmp_path / "here" / "log.csv").touch()
    assert installed(None, beside) == f"csv:{tmp_path / 'here' / 'log.csv'}", "the current folder goes first"
    assert installed("csv:logs/*.csv", None) == f"csv:{tmp_path / 'here' / 'logs' / '*.csv'}"
    assert installed("npz:/data/x.npz", None) == "npz:/data/x.npz"


def test_the_agent_that_was_enrolled_is_found(secured: Secured) -> None:
    with pytest.raises(ConfigError, match="no device was enrolled here"):
        enrol.only()
    state = secured.state / "edgefl"
    path = enrol.install(secured.kits["pi-01"], state, "digits")
    assert enrol.only() == path
    enrol.install(secured.kits["pi-02"], state, "digits")
    with pytest.raises(ConfigError, match="several devices were enrolled here"):
        enrol.only()


def test_a_member_comes_once_and_comes_back_with_new_keys(secured: Secured) -> None:
    fleet, now = secured.fleet, clock()
    with pytest.raises(ConfigError, match="'pi-01' is a member of fleet 'default' already"):
        fleet.add("pi-01", now)
    assert fleet.revoke("pi-01", now)
    assert not fleet.revoke("pi-01", now), "it was gone already"
    with pytest.raises(ConfigError, match="has no device 'pi-09'; its members: pi-02"):
        fleet.revoke("pi-09", now)
    fleet.add("pi-01", now)
    listed = x509.load_pem_x509_crl((fleet.folder.broker / REVOKED).read_bytes())
    old, new = fleet.members.members["pi-01"].certificates
    assert [entry.serial_number for entry in listed] == [old.number]
    assert new.revoked is None
    assert fleet.members.revoked_serials(now + DEVICE + DAY) == {}, "what has expired proves nothing any more"


def test_lists_grow_younger_even_within_a_second_and_are_never_of_the_future(secured: Secured) -> None:
    fleet, now, before = secured.fleet, clock(), None
    for number in range(5):
        text = fleet.authority.revocations({number + 1: now}, now, before)
        listed = x509.load_pem_x509_crl(text)
        assert listed.last_update_utc < now
        if before is not None:
            assert listed.last_update_utc > x509.load_pem_x509_crl(before).last_update_utc
        before = text


def test_certificates_that_end_soon_are_renewed_and_others_are_not(secured: Secured) -> None:
    fleet, now = secured.fleet, clock()
    certificate = fleet.folder.broker / CERTIFICATE
    before = certificate.read_bytes()
    assert not fleet.refresh(now + 200 * DAY)
    assert certificate.read_bytes() == before
    assert fleet.refresh(now + 300 * DAY)
    assert certificate.read_bytes() != before


def test_a_request_proves_that_its_sender_has_the_key() -> None:
    key = new_key()
    asked = request("pi-01", key)
    assert requested_key(asked) == key.public_key()
    encoded = bytearray(x509.load_pem_x509_csr(asked).public_bytes(Encoding.DER))
    encoded[encoded.index(b"pi-01") + 4] ^= 1  # another name than was signed
    changed = x509.load_der_x509_csr(bytes(encoded)).public_bytes(Encoding.PEM)
    for wrong in (b"", b"rubbish", changed):
        with pytest.raises(ValueError, match=r"."):
            requested_key(wrong)


def test_a_renewed_member_has_both_certificates_and_a_revoked_one_gets_none(secured: Secured) -> None:
    fleet, now = secured.fleet, clock()
    fleet.renew("pi-01", new_key().public_key(), now)
    assert [one.revoked for one in fleet.members.members["pi-01"].certificates] == [None, None]
    fleet.revoke("pi-01", now)
    assert None not in [one.revoked for one in fleet.members.members["pi-01"].certificates]
    with pytest.raises(ConfigError, match="'pi-01' is not a member"):
        fleet.renew("pi-01", new_key().public_key(), now)


def test_where_there_are_members_nobody_else_is_heard_and_nobody_because_he_came_first(secured: Secured) -> None:
    stranger, own = Signer.new().key, secured.fleet.members.keys()
    pins = secured.state / "pins"
    keys = DeviceKeys(pins, members=MembersFile(secured.fleet.folder.members))
    assert keys.admits("pi-01", own["pi-01"])
    assert not keys.admits("pi-01", own["pi-02"])
    assert not keys.admits("pi-03", stranger)
    assert "edgefl fleet add pi-03" in keys.remedy("pi-03")
    assert "--replace" in keys.remedy("pi-01")
    keys.pin("pi-03", stranger)
    assert not pins.exists()
    secured.fleet.revoke("pi-01", clock())
    assert not keys.admits("pi-01", own["pi-01"]), "noticed without a restart"
    assert keys.of("pi-01") is None


def test_a_run_file_may_name_fewer_but_nobody_who_is_no_member(secured: Secured) -> None:
    stranger, own = Signer.new().key, secured.fleet.members.keys()
    listed = {"pi-01": own["pi-01"], "pi-03": stranger}
    keys = DeviceKeys(None, listed, MembersFile(secured.fleet.folder.members))
    admitted = [keys.admits(name, key) for name, key in {**listed, "pi-02": own["pi-02"]}.items()]
    assert admitted == [True, False, False]


def test_a_run_finds_its_fleet_unless_its_file_says_otherwise(secured: Secured) -> None:
    plain = run_file({"name": "fedavg"})
    run = located(plain)
    assert parse(run.broker.url) == secured.fleet.folder.here
    assert fleet_of(run) is not None
    assert fleet_of(plain) is None, "an embedded broker has a fleet of its own"
    elsewhere = run_file({"name": "fedavg"}, broker={"url": "mqtts://elsewhere:1"})
    assert located(elsewhere) == elsewhere
    named = located(run_file({"name": "fedavg"}, broker={"url": f"mqtts://127.0.0.1:{secured.port}"}))
    assert named.broker.tls == secured.fleet.folder.coordinator_tls()
    with pytest.raises(ConfigError, match="there is no fleet 'barn' here: `edgefl fleet init"):
        located(run_file({"name": "fedavg"}, broker={"fleet": "barn"}))


def test_a_file_that_is_damaged_in_the_middle_of_a_run_lets_nobody_in_or_out(secured: Secured) -> None:
    path, own = secured.fleet.folder.members, secured.fleet.members.keys()
    keys = DeviceKeys(None, members=MembersFile(path))
    assert keys.admits("pi-01", own["pi-01"])
    path.write_text("{")
    assert keys.admits("pi-01", own["pi-01"])
    assert not keys.admits("pi-03", own["pi-01"])
    with pytest.raises(ConfigError, match="not the members of a fleet"):
        MembersFile(path).now()


def test_no_command_leaves_this_machine_unsecured_unless_told(secured: Secured) -> None:
    (secured.state / "run.toml").write_text('[task.partition]\nkind = "iid"\ndevices = 2\n')
    (secured.state / "agent.toml").write_text(
        f'[agent]\nid = "a"\nbroker = "mqtt://192.0.2.1"\ncoordinator = "{secured.fleet.coordinator_key}"\n'
    )
    plain = ["--set", "broker.url=mqtt://192.0.2.1"]
    for words in (["coordinator", "start", "run.toml", *plain], ["agent", "start", "agent.toml", "--log", "error"]):
        done = secured.edgefl(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "has no TLS" in done.stderr
        assert "--insecure starts all the same" in done.stderr
    with started(secured, "coordinator", "start", "run.toml", *plain, "--insecure") as lines:
        assert next(line for line in lines if "INSECURE: mqtt://192.0.2.1:1883 has no TLS" in line)
    examined = secured.edgefl("doctor", "run.toml", *plain)
    assert "insecure     mqtt://192.0.2.1:1883 has no TLS" in examined.stdout


def test_damaged_files_are_told_in_a_line(secured: Secured) -> None:
    folder = secured.fleet.folder
    with pytest.raises(ConfigError, match="fleet 'default' is there already"):
        FleetAdministration.new("default", ["127.0.0.1"], 8883, clock())
    folder.members.write_text("{}x")
    with pytest.raises(ConfigError, match="not the members of a fleet"):
        members.read(folder.members)
    folder.authority[1].write_text("rubbish")
    with pytest.raises(ConfigError, match="the authority of fleet 'default' is damaged"):
        FleetAdministration("default")
    os.truncate(folder.settings, 0)
    with pytest.raises(ConfigError, match=r"fleet\.json"):
        FleetAdministration("default")
    with pytest.raises(ConfigError, match="there is no fleet 'barn' here"):
        FleetAdministration("barn")


@pytest.mark.parametrize(
    ("text", "why"),
    [("pi-01,pi-01", "names pi-01 twice"), ("pi-01,coordinator", "is the coordinator's"), ("a/b", "cannot stand in a")],
)
def test_members_have_names_of_devices(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        device_names(text)


@pytest.mark.parametrize("host", ["server.local", "10.0.0.1", "fe80::1", "x"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert check_host(host) == host
    with pytest.raises(ConfigError, match="neither a host name nor an IP address"):
        check_host(f"{host}/..")


@pytest.mark.parametrize(
    ("url", "files", "danger"),
    [
        ("mqtt://localhost", Tls(), None),
        ("embedded", Tls(), None),
        ("mqtt://server.local", Tls(), "has no TLS"),
        ("mqtt://pi@server.local", Tls(), "has no TLS"),
        ("mqtts://server.local", Tls(), "neither a certificate nor a password"),
        ("mqtts://server.local", Tls(certificate=Path("a.crt")), None),
        ("mqtts://pi@server.local", Tls(), None),
    ],
)
def test_off_this_machine_there_is_tls_and_a_name_or_a_warning_that_nobody_overlooks(
    url: str, files: Tls, danger: str | None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    if danger is None:
        check(parse(url), files, "agent", insecure=False)
        assert not capsys.readouterr().err
        return
    with pytest.raises(ConfigError, match=f"{danger}.*edgefl fleet init.*--insecure starts all the same"):
        check(parse(url), files, "agent", insecure=False)
    check(parse(url), files, "agent", insecure=True)
    assert capsys.readouterr().err.count("INSECURE:") == 1
    assert not caplog.text, "it is said once"
