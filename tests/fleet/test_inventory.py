"""Every device that was ever seen, kept across runs and restarts, by several coordinators at once."""

import json
import multiprocessing
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from edgefl.base import events
from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.cli.coordinator import tell_devices
from edgefl.fleet import inventory, last_seen
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.last_seen import Sighting
from edgefl.watch.fleet_inventory import LastSeenWriter

BEGIN = datetime(2026, 11, 17, tzinfo=timezone.utc)
AT = BEGIN.timestamp()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")


def edgefl(*words):
    return CliRunner().invoke(app, ["fleet", *words])


def serve(run, *facts):
    """A run of a coordinator, from its start to its end."""
    seen = LastSeenWriter(FleetFolder("default").seen, run)
    for fact in facts:
        seen(fact)
    seen.write()


def test_a_device_is_remembered_with_its_runs_and_why_it_is_away():
    serve("monday", events.Joined("pi-1", 5, "shed", "0.1", at=AT), events.Answered("pi-1", 1, 9, at=AT + 60))
    serve(
        "tuesday",
        events.Joined("pi-1", 5, "shed", "0.2", at=AT + 3600),
        events.Joined("pi-2", 5, at=AT + 3600),
        events.Declined("pi-1", 3, "too warm", at=AT + 3700),
        events.Lost("pi-2", "rests: 84 °C, at most 80", at=AT + 3800),
    )
    one, two = (json.loads(line) for line in edgefl("list", "--json").stdout.splitlines())
    assert (one["seen"], one["first"]) == ("2026-11-17T01:01:40+00:00", "2026-11-17T00:00:00+00:00")
    assert (one["version"], one["host"], one["runs"]) == ("0.2", "shed", ["monday", "tuesday"])
    assert (one["reason"], two["reason"]) == ("declined round 3: too warm", "is disconnected: rests: 84 °C, at most 80")
    assert two["seen"] == "2026-11-17T01:00:00+00:00", "to be gone is not to be seen"
    shown = edgefl("list").stdout
    assert "2026-11-17 01:01 UTC" in shown
    assert "tuesday and 1 more" in shown
    assert "no member" in shown
    serve("wednesday", events.Joined("pi-1", 5, "shed", "0.2", at=AT + 9000))
    assert json.loads(edgefl("list", "--json").stdout.splitlines()[0])["reason"] == ""


def test_data_are_broken_since_they_broke_whatever_is_wrong_with_them_later():
    later = events.DataBroken("pi-1", "line 33", None, at=AT + 60)
    serve("monday", events.DataBroken("pi-1", "line 32", None, at=AT), later)
    (one,) = (json.loads(line) for line in edgefl("list", "--json").stdout.splitlines())
    assert (one["reason"], one["since"]) == ("has no usable data: line 33", "2026-11-17T00:00:00+00:00")


def test_a_run_that_is_for_other_devices_says_only_that_a_device_was_heard():
    other = "device.not_in_run", "not in this run: [devices] of its run file names 1"
    serve("monday", events.Joined("pi-1", 5, "shed", "0.1", at=AT), events.Declined("pi-1", 3, "too warm", at=AT + 1))
    refused = [events.Refused(name, *other, barred=True, version="0.2", at=AT + 60) for name in ("pi-1", "pi-2")]
    serve("tuesday", *refused)
    one, two = (json.loads(line) for line in edgefl("list", "--json").stdout.splitlines())
    assert (one["reason"], one["runs"], one["version"]) == ("declined round 3: too warm", ["monday"], "0.2")
    assert one["since"] == "2026-11-17T00:00:01+00:00"
    assert one["seen"] == "2026-11-17T00:01:00+00:00"
    assert (two["reason"], two["runs"]) == ("", [])


def test_a_device_that_is_not_at_work_is_listed_with_the_reason_and_since_when():
    old = "device 'pi-2' speaks protocol 2, the coordinator 3"
    for hour in range(3):
        at = AT + 3600 * hour
        serve(
            "monday",
            events.Joined("pi-1", 5, "shed", "0.2", stale=True, at=at),
            events.DataBroken("pi-1", "line 32", AT, at=at),
            events.Answered("pi-1", 1, 9, at=at + 60),
            events.Refused("pi-2", "protocol.version", old, barred=True, version="0.1", host="barn", at=at),
            events.DataBroken("pi-3", "line 32", None, "0.2", "yard", at=at),
        )
    one, two, three = (json.loads(line) for line in edgefl("list", "--json").stdout.splitlines())
    assert one["reason"] == "trains on samples from 17 November 2026: line 32", "an answer does not mend it"
    assert (two["reason"], two["version"], two["host"]) == (f"does not take part: {old}", "0.1", "barn")
    assert (three["reason"], three["version"], three["host"]) == ("has no usable data: line 32", "0.2", "yard")
    assert {row["since"] for row in (one, two, three)} == {"2026-11-17T00:00:00+00:00"}, "as long as it holds"
    serve("monday", events.Joined("pi-3", at=AT + 9000))
    *_, three = (json.loads(line) for line in edgefl("list", "--json").stdout.splitlines())
    assert three["reason"] == ""


def test_a_member_that_cannot_come_any_more_or_never_came_is_listed_with_the_reason():
    fleet = FleetAdministration.new("default", ["127.0.0.1"], 8883, BEGIN)
    fleet.add("pi-1", BEGIN)
    (row,) = inventory.known(fleet.folder, BEGIN + timedelta(days=1))
    assert (row.reason, row.since) == ("no run has seen it", None)
    (row,) = inventory.known(fleet.folder, BEGIN + timedelta(days=1000))
    assert (
        row.reason
        == "its certificate has ended: `edgefl fleet renew pi-1` and `edgefl fleet listen` let it renew by itself"
    )
    assert row.since == row.expires


def test_whom_somebody_forgets_is_not_written_again_until_it_comes_again():
    seen = LastSeenWriter(FleetFolder("default").seen, "run")
    seen(events.Joined("pi-1", 5, at=AT))
    seen(events.Joined("pi-2", 5, at=AT))
    seen.write()
    assert edgefl("forget", "pi-1").stdout == "forgot what was seen of 'pi-1'\n"
    seen(events.Answered("pi-2", 1, 9, at=AT + 100))
    seen.write()
    assert set(last_seen.read(FleetFolder("default").seen)) == {"pi-2"}
    seen(events.Answered("pi-1", 1, 9, at=AT + 200))
    seen.write()
    assert set(last_seen.read(FleetFolder("default").seen)) == {"pi-1", "pi-2"}
    result = edgefl("forget", "pi-9")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("no device 'pi-9' was seen in fleet 'default'")


def test_a_member_stays_one_when_it_is_forgotten():
    fleet = FleetAdministration.new("default", ["127.0.0.1"], 8883, clock(), None)
    fleet.add("pi-1", clock())
    assert "pi-1" in edgefl("list").stdout
    assert "'pi-1' is still a member" in edgefl("forget", "pi-1").stdout
    serve("run", events.Joined("pi-1", 5, "shed", "0.1", at=AT))
    row = json.loads(edgefl("list", "--json").stdout)
    assert (row["runs"], row["key"][:8]) == (["run"], "ed25519:")
    assert row["expires"].endswith("+00:00")
    assert "forgot what was seen" in edgefl("forget", "pi-1").stdout
    assert json.loads(edgefl("list", "--json").stdout)["seen"] is None


def test_where_nobody_was_ever_seen_and_there_is_no_fleet_that_is_said():
    assert "there is no fleet 'default' here" in str(edgefl("list").exception)


def test_what_cannot_be_read_is_begun_anew_and_what_an_earlier_version_wrote_is_kept():
    file = FleetFolder("default").seen
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"pi-1": {"at": "2026-01-31T12:00:00Z", "version": "0.1.0"}}')
    assert last_seen.read(file)["pi-1"].version == "0.1.0"
    file.write_text('{"pi-1": {"at": "2026-01-31T12:00:00Z", "of_tomorrow": 1}}')
    assert "pi-1" in last_seen.read(file)
    file.write_text('{"pi-1": ')
    serve("run", events.Joined("pi-2", 5, at=AT))
    assert set(last_seen.read(file)) == {"pi-2"}


def _write(state, number):
    for i in range(20):
        last_seen.write(state, {f"pi-{number}-{i}": Sighting(at=BEGIN + timedelta(seconds=i), runs=(f"run-{number}",))})


def test_coordinators_that_write_at_the_same_time_lose_nobody(tmp_path):
    file = tmp_path / "seen.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(file, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(last_seen.read(file)) == 80


MOMENTS = st.integers(0, 5).map(lambda seconds: BEGIN + timedelta(seconds=seconds))
SIGHTINGS = st.builds(
    Sighting,
    at=MOMENTS,
    version=st.sampled_from(["", "0.1"]),
    runs=st.lists(st.sampled_from("abc"), max_size=2, unique=True),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(SIGHTINGS, min_size=1, max_size=5))
def test_a_device_was_last_seen_at_its_last_sighting_and_served_every_run(tmp_path_factory, seen):
    file = tmp_path_factory.mktemp("seen") / "seen.json"
    for sighting in seen:
        last_seen.write(file, {"pi": sighting})
    known = last_seen.read(file)["pi"]
    assert known.at == max(one.at for one in seen)
    assert (known.first or known.at) == min(one.at for one in seen)
    assert set(known.runs) == {run for one in seen for run in one.runs}
    assert len(known.runs) == len(set(known.runs))


def test_the_inventory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(last_seen, "DEVICES", 3)
    monkeypatch.setattr(last_seen, "RUNS", 2)
    file = tmp_path / "seen.json"
    for i in range(6):
        last_seen.write(
            file,
            {
                f"pi-{i}": Sighting(at=BEGIN + timedelta(days=i)),
                "pi": Sighting(at=BEGIN + timedelta(days=9), runs=(str(i),)),
            },
        )
    assert set(last_seen.read(file)) == {"pi-4", "pi-5", "pi"}
    assert last_seen.read(file)["pi"].runs == ("4", "5")


def test_a_start_names_only_devices_that_no_run_has_seen(capsys):
    fleet = FleetAdministration.new("default", ["127.0.0.1"], 8883, clock())
    for name in ("pi-1", "pi-2"):
        fleet.add(name, clock())

    def told() -> str:
        tell_devices(fleet.folder)
        return capsys.readouterr().err

    assert told() == "on each device, with its kit:  edgefl agent enrol pi-1.kit\n"
    serve("monday", events.Joined("pi-1", 5, at=AT))
    assert told() == "on pi-2, with its kit:  edgefl agent enrol pi-2.kit\n"
    serve("monday", events.Joined("pi-2", 5, at=AT))
    assert told() == ""
