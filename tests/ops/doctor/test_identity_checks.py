"""A fleet that is less safe than it could be is found by the doctor, and what to do about it is said."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from edgefl.fleet import mosquitto
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.schema import RunFile
from edgefl.ops.doctor.finding import Finding
from edgefl.ops.doctor.identities import at_its_broker, of_agent, of_run
from edgefl.wire.address import Address, parse
from edgefl.wire.signing import Signer

FAR = Address("mqtts", "broker.example", 8883)
TASK = {
    "run": {"name": "r"},
    "rounds": {"cohort": 1},
    "task": {"data": "digits", "model": "mlp"},
    "algorithm": {"name": "fedavg"},
}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = FleetAdministration.new("default", ["broker.example"], 8883, clock())
    made.add("pi-1", clock())
    return made


def looked(now: datetime | None = None, **more: object) -> dict[str, Finding]:
    """What is worth knowing of a run of this fleet."""
    run = RunFile.model_validate({**TASK, **more})
    return bad(list(of_run(run, FAR, now or clock())))


def bad(findings: list[Finding]) -> dict[str, Finding]:
    for finding in findings:
        assert finding.level == "ok" or finding.remedy, finding
    return {finding.what: finding for finding in findings if finding.level != "ok"}


def agent(address: Address = FAR, **about: object) -> dict[str, Finding]:
    file = AgentFile.model_validate(
        {"agent": {"id": "pi-1", "broker": str(address), **about}, "data": {"source": "digits"}}
    )
    return bad(list(of_agent(file, address)))


def test_a_new_fleet_that_seals_is_fine(fleet: FleetAdministration) -> None:
    assert not looked(wire={"seal": "auto"})


def test_a_run_that_names_no_broker_is_looked_at_where_its_devices_come(fleet: FleetAdministration) -> None:
    run = at_its_broker(RunFile.model_validate(TASK))
    assert parse(run.broker.url) == fleet.settings.broker
    assert run.broker.tls.certificate == fleet.folder.coordinator[0]


def test_updates_that_the_broker_can_read_are_told(fleet: FleetAdministration) -> None:
    assert 'wire.seal = "auto"' in looked()["seal"].remedy


def test_members_whose_certificate_ended_ends_soon_or_is_missing_are_named(fleet: FleetAdministration) -> None:
    soon, late = looked(clock() + timedelta(days=80)), looked(clock() + timedelta(days=91))
    assert soon["members"].level == "warning"
    assert "'pi-1' ends soon" in soon["members"].text
    assert late["members"].level == "wrong"
    assert "edgefl fleet renew pi-1" in late["members"].remedy
    member = fleet.members.members["pi-1"].model_copy(update={"certificates": ()})
    without = fleet.members.model_copy(update={"members": {"pi-1": member}})
    fleet.folder.members.write_text(without.model_dump_json())
    assert "has no certificate that counts" in looked()["members"].text


def test_certificates_of_authority_and_broker_that_end_are_told(fleet: FleetAdministration) -> None:
    assert "ends soon" in looked(clock() + timedelta(days=360))["certificate"].text
    assert looked(clock() + timedelta(days=3660))["certificate"].level == "wrong"


@pytest.mark.parametrize("which", ["authority.key", "coordinator.key", "broker/broker.key"])
def test_keys_that_others_can_read_are_told(fleet: FleetAdministration, which: str) -> None:
    (fleet.folder.path / which).chmod(0o644)
    assert "chmod 600" in looked()["key"].remedy


@pytest.mark.parametrize("state", ["ended", "missing", "garbage"])
def test_a_revocation_list_that_is_of_no_use_is_wrong(fleet: FleetAdministration, state: str) -> None:
    path = fleet.folder.broker / mosquitto.REVOKED
    if state == "missing":
        path.unlink()
    if state == "garbage":
        path.write_text("nothing")
    finding = looked(clock() + timedelta(days=3660 if state == "ended" else 0))["revocations"]
    assert finding.level == "wrong"
    assert "edgefl broker start" in finding.remedy


def test_a_folder_that_others_can_enter_and_kits_that_lie_about_are_told(
    fleet: FleetAdministration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert not looked(wire={"seal": True})
    Path("pi-1.kit").touch()
    fleet.folder.path.chmod(0o755)
    findings = looked(wire={"seal": True})
    assert "pi-1.kit" in findings["kits"].text
    assert f"chmod 700 {fleet.folder.path}" in findings["folder"].remedy


def test_what_a_coordinator_can_learn_of_a_device_s_samples_is_said(fleet: FleetAdministration) -> None:
    def told(**privacy: float) -> str:
        file = AgentFile.model_validate({"agent": {"id": "pi-1"}, "privacy": privacy})
        return next(finding.text for finding in of_agent(file, FAR) if finding.what == "privacy")

    assert told().startswith("no allowance")
    assert "up to epsilon 8 at delta 0.001" in told(epsilon=8.0)


def test_a_page_across_a_network_without_tls_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "can read its token" in looked(page={"host": "0.0.0.0"})["page"].text
    assert "page" not in looked(page={"host": "127.0.0.1"})


def test_a_fleet_without_members_believes_who_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "edgefl fleet init" in looked()["identities"].remedy
    assert "identities" not in looked(devices={"pi-1": Signer.new().key})


def test_the_authority_s_key_on_a_machine_that_is_only_an_agent_is_told(fleet: FleetAdministration) -> None:
    assert "authority.key" in agent()["authority"].text
    assert not agent(Address("mqtts", "127.0.0.1", 8883)), "here it belongs to the server"


def test_a_device_s_key_that_others_can_read_and_a_mere_password_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key = tmp_path / "pi-1" / "device.key"
    key.parent.mkdir()
    key.write_text("x")
    key.chmod(0o640)
    findings = agent(Address("mqtts", "broker.example", 8883, "pi-1"), folder=str(tmp_path))
    assert f"chmod 600 {key}" in findings["key"].remedy
    assert "edgefl fleet add pi-1" in findings["identities"].remedy
