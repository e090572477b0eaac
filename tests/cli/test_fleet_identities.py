"""What an operator types about lifetimes, late renewals and the broker's address, and what is said."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.fleet import expiring, lifetimes
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock, read_certificate
from edgefl.fleet.folder import FleetFolder

DAY = timedelta(days=1)
NOW = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)


def edgefl(*words: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *words])


def lasts(fleet: FleetAdministration, name: str) -> timedelta:
    pem = fleet.add(name, clock()).certificate
    return read_certificate(pem.encode()).not_valid_after_utc - clock()


def test_a_fleet_is_made_with_a_lifetime_and_changed_later() -> None:
    assert edgefl("init", "--host", "server.local", "--device-certificates", "2y").exit_code == 0
    assert 729 * DAY < lasts(FleetAdministration("default"), "pi-01") < 731 * DAY
    shown = edgefl("settings").stdout
    assert "certificates of devices last 2y; a device renews its own by itself until 180d after its end" in shown
    changed = edgefl("settings", "--device-certificates", "30d", "--grace", "0d").stdout
    assert "last 30d; a device renews its own by itself until 0d after its end" in changed
    assert 29 * DAY < lasts(FleetAdministration("default"), "pi-02") < 31 * DAY


@pytest.mark.parametrize("text", ["", "2", "0d", "-1d", "11y", "90 days", "1e9d", "²d"])
def test_a_lifetime_that_is_none_is_refused_before_anything_is_made(text: str) -> None:
    result = edgefl("init", "--host", "server.local", f"--device-certificates={text}")
    assert isinstance(result.exception, ConfigError)
    assert "say 1d to 10y" in str(result.exception)
    assert not FleetFolder("default").exists()


def test_spans_and_moments_mean_what_they_say() -> None:
    assert [lifetimes.days(text, "--x") for text in ("90d", "2w", "1y", "1Y ")] == [90, 14, 365, 365]
    assert [lifetimes.shown(count) for count in (90, 14, 730, 0)] == ["90d", "2w", "2y", "0d"]
    assert lifetimes.moment("7d", "--until", NOW) == NOW + 7 * DAY
    assert lifetimes.moment("2026-11-20", "--until", NOW) == datetime(2026, 11, 21, tzinfo=timezone.utc)
    for wrong in ("tomorrow", "2y", "2099-01-01"):
        with pytest.raises(ConfigError, match="--until"):
            lifetimes.moment(wrong, "--until", NOW)


def test_an_address_is_for_good_and_init_says_how_to_move_it() -> None:
    told = edgefl("init", "--host", "192.168.1.5").stdout
    assert "an address is for good, a name can move" in told
    assert "edgefl fleet host NAME" in told
    assert "for good" not in edgefl("init", "--host", "server.local", "--fleet", "named").stdout
    assert "for good" not in edgefl("init", "--host", "127.0.0.1", "--fleet", "trial").stdout


def test_renew_says_what_will_happen() -> None:
    fleet = FleetAdministration.new("default", ["server.local"], 8883, clock())
    fleet.add("pi-01", clock())
    fleet.add("pi-02", clock() - 400 * DAY)
    told = edgefl("renew", "pi-01", "pi-02", "--within", "10d").stdout
    assert told.count("may have a new certificate until") == 2
    assert "a run asks it to renew" in told
    assert "its agent asks at server.local:8885" in told
    assert "fleet listen" in told
    left = fleet.members.active()["pi-02"].renew_until
    assert left is not None
    assert 9 * DAY < left - clock() <= 10 * DAY
    result = edgefl("renew", "pi-09")
    assert "has no device 'pi-09'; its members: pi-01, pi-02" in str(result.exception)


def test_moving_says_what_comes_next_and_where_the_broker_is() -> None:
    edgefl("init", "--host", "192.168.1.5")
    told = edgefl("host", "server.local", "--also", "10.0.0.7").stdout
    assert (
        "devices look for the broker at mqtts://server.local:8883, mqtts://10.0.0.7:8883, mqtts://192.168.1.5" in told
    )
    assert "fleet host --drop 192.168.1.5" in told
    edgefl("host", "--drop", "192.168.1.5", "--drop", "10.0.0.7")
    assert edgefl("host").stdout == "devices look for the broker at mqtts://server.local:8883\n"
    assert isinstance(edgefl("host", "--also", "x.local").exception, ConfigError)


def test_who_will_be_shut_out_is_counted_in_one_line() -> None:
    fleet = FleetAdministration.new("default", ["server.local"], 8883, NOW)
    for name, ago in (("pi-01", 0), ("pi-02", 65), ("pi-03", 100)):
        fleet.add(name, NOW - ago * DAY)
    line = expiring.line(fleet.folder, NOW)
    assert line.startswith(
        "fleet 'default': 2 certificates end within 30 days or ended (pi-03 ended 2026-11-07, pi-02 ends 2026-12-12):"
    )
    assert "edgefl fleet renew NAME" in line
    assert list(expiring.lines(NOW)) == [line]
    fleet.revoke("pi-02", NOW)
    fleet.revoke("pi-03", NOW)
    assert list(expiring.lines(NOW)) == []


def test_certificates_that_last_a_short_time_are_due_when_a_third_is_left() -> None:
    fleet = FleetAdministration.new("default", ["server.local"], 8883, NOW, device_certificates=30 * DAY)
    fleet.add("pi-01", NOW)
    assert not expiring.line(fleet.folder, NOW)
    assert "within 10 days" in expiring.line(fleet.folder, NOW + 21 * DAY)


def test_fleet_list_ends_with_that_line() -> None:
    fleet = FleetAdministration.new("default", ["server.local"], 8883, clock())
    fleet.add("pi-01", clock() - 80 * DAY)
    assert "1 certificate ends within 30 days" in edgefl("list").stdout.splitlines()[-1]
    assert len(edgefl("list", "--json").stdout.splitlines()) == 1
