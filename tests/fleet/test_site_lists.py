"""Who belongs to a site: the list that its broker is told, and the file that its server is given."""

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from device_agent.enrol import install
from edgefl.base.errors import ConfigError, WireError
from edgefl.cli.app import app
from edgefl.fleet import kit, mosquitto, sites
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.site_broker import SiteBroker, _changes
from edgefl.fleet.sites import SiteFile
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load
from edgefl.wire.address import Address
from edgefl.wire.mqtt import MqttTransport


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return FleetAdministration.new("default", ["server.local"], 8883, clock())


@pytest.fixture
def north(fleet: FleetAdministration) -> SiteFile:
    return sites.add(fleet, "north", ["north.local"], 8884, clock(), replace=False)


def test_a_device_of_a_site_is_told_the_sites_broker_and_nobody_else_is(
    fleet: FleetAdministration, north: SiteFile
) -> None:
    there, here = fleet.add("pi-7", clock(), site="north"), fleet.add("pi-1", clock())
    assert (there.broker, there.site) == ("mqtts://north.local:8884", "north")
    assert (here.broker, here.site) == ("mqtts://server.local:8883", "")
    assert north.centre == here.broker


def test_a_newer_list_counts_and_the_same_or_an_older_one_does_not(fleet: FleetAdministration, north: SiteFile) -> None:
    old = sites.signed_list(fleet, "north")
    fleet.add("pi-7", clock(), site="north")
    listed = sites.newer(north, north.members, sites.signed_list(fleet, "north"))
    assert listed is not None
    assert listed.devices == ("pi-7",)
    assert sites.newer(north, listed, sites.signed_list(fleet, "north")) is None
    assert sites.newer(north, listed, old) is None, "whoever owns a broker could say it again"


def test_a_device_that_was_sent_away_is_on_no_list_but_that_of_the_revoked(
    fleet: FleetAdministration, north: SiteFile
) -> None:
    fleet.add("pi-7", clock(), site="north")
    before = sites.members_of(fleet, "north")
    fleet.revoke("pi-7", clock())
    after = sites.members_of(fleet, "north")
    assert (before.devices, after.devices) == (("pi-7",), ())
    assert after.revoked != before.revoked
    assert after.number > before.number
    assert "pi-7" not in mosquitto.acl("default", fleet.members.active())


def test_a_list_that_the_coordinator_did_not_sign_for_this_site_is_refused(
    fleet: FleetAdministration, north: SiteFile
) -> None:
    south = sites.add(fleet, "south", ["south.local"], 8885, clock(), replace=False)
    said = json.loads(sites.signed_list(fleet, "north"))
    changed = json.dumps({**said, "list": said["list"].replace('"devices":[]', '"devices":["evil"]')}).encode()
    elsewhere = north.model_copy(update={"fleet": "other"})
    for file, payload in (
        (north, changed),
        (south, sites.signed_list(fleet, "north")),
        (elsewhere, sites.signed_list(fleet, "north")),
        (north, b"\xff"),
        (north, b"{}"),
        (north, b"[]"),
    ):
        with pytest.raises(WireError, match=r"list"):
            sites.newer(file, file.members, payload)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fleet", "add", "pi-7", "--site", "south"], "there is no site 'south' (north)"),
        (["fleet", "add", "north"], "'north' is a site of fleet 'default'"),
        (["fleet", "site", "pi-1", "--host", "x"], "'pi-1' is a device of fleet 'default'"),
        (["fleet", "site", "north", "--host", "x"], "site 'north' is there already"),
        (["fleet", "site", "coordinator", "--host", "x"], "'coordinator' is the coordinator's own name"),
        (["fleet", "site", "west", "--host", "x y"], "neither a host name nor an IP address"),
        (["broker", "start", "--site", "nowhere.site"], "nowhere.site: cannot be read"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    fleet: FleetAdministration, north: SiteFile, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fleet.folder.path)
    fleet.add("pi-1", clock())
    with pytest.raises(ConfigError) as told:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_a_site_with_new_keys_has_the_old_ones_revoked(fleet: FleetAdministration, north: SiteFile) -> None:
    before = len(fleet.members.revoked_serials(clock()))
    again = sites.add(fleet, "north", ["north.local"], 8884, clock(), replace=True)
    assert again.bridge_key != north.bridge_key
    assert len(fleet.members.revoked_serials(clock())) == before + 1


def test_the_file_is_for_its_owner_alone_and_says_the_same_when_it_is_read(north: SiteFile, tmp_path: Path) -> None:
    path = tmp_path / "north.site"
    sites.write(north, path)
    assert path.stat().st_mode & 0o077 == 0
    assert sites.read(path) == north
    path.write_text(path.read_text().replace("edgefl site", "edgefl kit"))
    with pytest.raises(ConfigError, match="not a site"):
        sites.read(path)


def test_a_torn_file_leaves_the_broker_of_a_site_what_it_has(
    north: SiteFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "north.site"
    sites.write(north, path)
    site, line = SiteBroker(path), MqttTransport(Address("unix", str(tmp_path / "nobody")), "members")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert not _changes(site, line, signal.SIGHUP)
    assert site.file == north
    assert "the broker goes on with what it has" in caplog.text
    path.write_bytes(whole)
    assert _changes(site, line, signal.SIGHUP)


def test_the_kit_of_a_device_at_a_site_says_so_in_its_agent_file(
    fleet: FleetAdministration, north: SiteFile, tmp_path: Path
) -> None:
    path = tmp_path / "pi-7.kit"
    kit.write(fleet.add("pi-7", clock(), site="north"), path)
    installed = install(kit.read(path), tmp_path / "state", data="npz:/x.npz")
    assert load(AgentFile, installed, (), environment={}).agent.site == "north"
