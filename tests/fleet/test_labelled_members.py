"""The operator gives members labels; they outlive a new board, and the fleet's list can be asked by them."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from typer.testing import CliRunner

from edgefl.base import events
from edgefl.base.device_labels import Properties
from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.fleet import inventory, members, sites
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.folder import FleetFolder
from edgefl.watch.fleet_inventory import LastSeenWriter
from edgefl.wire.signing import Signer

BEGIN = datetime(2026, 11, 17, tzinfo=timezone.utc)
AT = BEGIN.timestamp()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def fleet():
    opened = FleetAdministration.new("default", ["127.0.0.1"], 8883, BEGIN)
    for name in ("pi-01", "pi-02", "pi-03"):
        opened.add(name, BEGIN)
    return opened


def edgefl(*words):
    return CliRunner().invoke(app, ["fleet", *words])


def labels_of(fleet, name):
    return fleet.members.members[name].labels


def test_a_label_is_given_changed_and_taken_away(fleet):
    shown = edgefl("label", "pi-03", "site=north", "camera=v2").stdout
    assert shown == "pi-03: camera=v2 site=north\n"
    assert labels_of(fleet, "pi-03") == {"camera": "v2", "site": "north"}
    assert edgefl("label", "pi-03", "site=south", "camera=").stdout == "pi-03: site=south\n"
    assert edgefl("label", "pi-03", "site=").stdout == "pi-03: no labels\n"
    assert edgefl("label", "pi-03").stdout == "pi-03: no labels\n"


def test_several_members_get_them_at_once_or_none_does(fleet):
    assert edgefl("label", "pi-01,pi-02", "site=north").stdout == "pi-01: site=north\npi-02: site=north\n"
    failed = edgefl("label", "pi-01,pi-09", "site=south").exception
    assert isinstance(failed, ConfigError)
    assert str(failed) == "fleet 'default' has no device 'pi-09'; its members: pi-01, pi-02, pi-03"
    assert labels_of(fleet, "pi-01") == {"site": "north"}


def test_a_site_has_no_labels_and_a_revoked_device_gets_none(fleet):
    with pytest.raises(ConfigError, match="'north' is a site of fleet 'default': label its devices"):
        _with_site(fleet).label(["north"], {"owner": "ada"}, BEGIN)
    fleet.revoke("pi-02", BEGIN)
    with pytest.raises(ConfigError, match="has no device 'pi-02'"):
        fleet.label(["pi-02"], {"owner": "ada"}, BEGIN)


def _with_site(fleet):
    sites.add(fleet, "north", ["127.0.0.1"], 8890, BEGIN, replace=False)
    return fleet


def test_a_new_board_keeps_the_labels_of_its_name_and_one_that_was_sent_away_does_not(fleet):
    fleet.label(["pi-01", "pi-02"], {"site": "north"}, BEGIN)
    fleet.add("pi-01", BEGIN, replace=True)
    fleet.revoke("pi-02", BEGIN)
    fleet.add("pi-02", BEGIN)
    assert (labels_of(fleet, "pi-01"), labels_of(fleet, "pi-02")) == ({"site": "north"}, {})


def test_a_new_board_keeps_its_labels_and_gets_a_certificate_that_lasts_as_the_fleet_says_by_now(fleet):
    fleet.label(["pi-01"], {"site": "north"}, BEGIN)
    fleet.change(device_certificate_days=30)
    fleet.add("pi-01", BEGIN, replace=True)
    member = fleet.members.members["pi-01"]
    assert (member.labels, member.expires) == ({"site": "north"}, BEGIN + timedelta(days=30))


def test_a_permit_to_renew_leaves_the_labels_as_they_are_and_the_certificate_uses_up_the_permit_alone(fleet):
    fleet.label(["pi-01"], {"site": "north"}, BEGIN)
    fleet.permit("pi-01", BEGIN + timedelta(days=1), BEGIN)
    certificate = fleet.members.members["pi-01"].certificates[-1]
    renewed = fleet.members.with_certificate("pi-01", certificate, BEGIN).members["pi-01"]
    assert (renewed.labels, renewed.renew_until) == ({"site": "north"}, None)


def test_a_fleet_without_labels_has_the_file_that_earlier_versions_read(fleet):
    assert "labels" not in fleet.folder.members.read_text()
    fleet.label(["pi-01"], {"site": "north"}, BEGIN)
    assert json.loads(fleet.folder.members.read_text())["members"]["pi-01"]["labels"] == {"site": "north"}
    fleet.label(["pi-01"], {"site": ""}, BEGIN)
    assert "labels" not in fleet.folder.members.read_text()


def test_to_give_the_labels_that_are_there_changes_nothing(fleet):
    fleet.label(["pi-01"], {"site": "north"}, BEGIN)
    before = fleet.members
    fleet.label(["pi-01"], {"site": "north", "camera": ""}, BEGIN)
    assert fleet.members.changes == before.changes


@pytest.mark.parametrize("labels", [{"memory_mb": "4000"}, {"site": ""}, {"a b": "c"}])
def test_a_file_whose_labels_cannot_be_is_refused_with_its_name(fleet, labels):
    table = json.loads(fleet.folder.members.read_text())
    table["members"]["pi-01"]["labels"] = labels
    fleet.folder.members.write_text(json.dumps(table))
    with pytest.raises(ConfigError, match=r"members\.json: not the members of a fleet \(members\.pi-01\.labels"):
        members.read(fleet.folder.members)


def test_the_site_of_a_bridged_broker_is_a_label_unless_another_is_given():
    member = members.Member(key=Signer.new().key, added=BEGIN, site="north", labels={"camera": "v2"})
    assert member.known_as == {"site": "north", "camera": "v2"}
    assert member.model_copy(update={"labels": {"site": "attic"}}).known_as == {"site": "attic"}


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────


def seen(*facts):
    told = LastSeenWriter(FleetFolder("default").seen, "monday")
    for fact in facts:
        told(fact)
    told.write()


def test_the_list_shows_labels_where_there_are_any(fleet):
    assert "labels" not in edgefl("list").stdout
    fleet.label(["pi-01"], {"site": "north", "camera": "v2"}, BEGIN)
    heading, first, second, _ = edgefl("list").stdout.splitlines()
    place = heading.index("labels")
    assert heading[place:].split()[1:] == ["what", "is", "wrong"]
    assert first[place:].startswith("camera=v2 site=north  no run has seen it")
    assert second[place:].split()[0] == "-"


def test_the_list_is_asked_by_labels_and_by_what_devices_said_when_they_last_joined(fleet):
    fleet.label(["pi-01", "pi-02"], {"site": "north"}, BEGIN)
    small, large = {"arch": "armv7l", "memory_mb": 430}, {"arch": "aarch64", "memory_mb": 3790}
    seen(
        events.Joined("pi-01", 50, version="0.2", back_end="onnx", at=AT, **small),
        events.Joined("pi-03", 70, version="0.2", back_end="onnx", at=AT, **large),
        events.Joined("pi-02", 60, version="0.2", back_end="onnx", at=AT, **large),
    )

    def listed(where):
        return [json.loads(line)["name"] for line in edgefl("list", "--json", "--where", where).stdout.splitlines()]

    assert listed("site == 'north' and memory_mb >= 900") == ["pi-02"]
    assert listed("arch == 'aarch64'") == ["pi-02", "pi-03"]
    assert listed("backend == 'onnx' and version == '0.2' and samples in [50, 70]") == ["pi-01", "pi-03"]
    assert listed("device == 'pi-03' or site == 'north'") == ["pi-01", "pi-02", "pi-03"]
    row = json.loads(edgefl("list", "--json", "--where", "device == 'pi-02'").stdout)
    assert row["labels"] == {"site": "north"}
    assert row["properties"] == {
        "arch": "aarch64",
        "memory_mb": 3790,
        "version": "0.2",
        "backend": "onnx",
        "samples": 60,
    }
    assert "pi-03" not in edgefl("list", "--where", "site == 'north'").stdout


def test_what_a_run_does_not_say_leaves_what_the_last_one_said():
    seen(events.Joined("pi-1", 50, version="0.2", back_end="onnx", arch="aarch64", memory_mb=900, at=AT))
    barred = events.Refused("pi-1", "device.not_in_run", "not in this run", barred=True, version="0.3", at=AT + 60)
    seen(barred)
    (row,) = inventory.known(FleetFolder("default"))
    assert row.properties == Properties("aarch64", 900, "0.3", "onnx", 50)


def test_a_label_that_no_device_has_is_an_error_with_the_nearest(fleet):
    fleet.label(["pi-01"], {"camera": "v2"}, BEGIN)
    failed = edgefl("list", "--where", "camra == 'v2'").exception
    assert isinstance(failed, ConfigError)
    assert str(failed).startswith("--where: no device has a label 'camra'; did you mean 'camera'?")
