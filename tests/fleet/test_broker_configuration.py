"""What a Mosquitto is told, by its version; and that it is never asked to read what it would refuse."""

import os
import signal
import time
from pathlib import Path

import pytest
from secured_fleet import Party, broker, make

from edgefl.base.errors import ConfigError
from edgefl.fleet import broker_files, mosquitto
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.broker import plan_of, running, unless_torn
from edgefl.fleet.folder import Settings
from edgefl.wire import topics

SETTINGS = Settings(fleet="default", hosts=("127.0.0.1",), port=8883)
PLUGIN = Path("/usr/lib/mosquitto/mosquitto_acl_file.so")
SOCKET = Path("coordinators/socket")
DEPRECATED = {"per_listener_settings", "acl_file", "allow_anonymous"}  # by the release notes of 2.1; gone in 3.0
NOBODY_LISTENS = 0x10


def options(text: str) -> list[list[str]]:
    return [line.split(" ") for line in text.splitlines() if line and not line.startswith("#")]


def section(text: str, listener: str) -> dict[str, str]:
    """The options of one listener."""
    _, _, rest = text.partition(f"listener {listener}\n")
    lines = rest.split("\nlistener ")[0].splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def test_mosquitto_2_0_is_told_in_the_options_that_it_has():
    text = mosquitto.configuration(SETTINGS, Path(), SOCKET)
    assert text.splitlines()[1] == "per_listener_settings true"
    devices, coordinators = section(text, "8883 127.0.0.1"), section(text, f"0 {SOCKET}")
    assert (devices["allow_anonymous"], devices["acl_file"]) == ("false", "acl")
    assert (coordinators["allow_anonymous"], coordinators["acl_file"]) == ("true", "acl.coordinators")


def test_later_ones_are_told_nothing_that_goes_away_in_3_0():
    text = mosquitto.configuration(SETTINGS, Path(), SOCKET, acl_plugin=PLUGIN)
    assert not {name for name, *_ in options(text)} & DEPRECATED
    assert text.splitlines()[1:5] == [
        f"plugin_load devices {PLUGIN}",
        "plugin_opt_acl_file acl",
        f"plugin_load coordinators {PLUGIN}",
        "plugin_opt_acl_file acl.coordinators",
    ]
    devices, coordinators = section(text, "8883 127.0.0.1"), section(text, f"0 {SOCKET}")
    assert (devices["listener_allow_anonymous"], devices["plugin_use"]) == ("false", "devices")
    assert (coordinators["listener_allow_anonymous"], coordinators["plugin_use"]) == ("true", "coordinators")


def test_without_a_socket_nothing_is_said_of_coordinators():
    assert (
        "coordinators" not in mosquitto.configuration(SETTINGS, Path(), acl_plugin=PLUGIN).split("# The coordinator")[0]
    )


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-1").fleet


def files(fleet: FleetAdministration) -> dict[str, bytes]:
    return plan_of(fleet).texts(SOCKET, None)


def test_no_path_of_the_folder_stands_in_the_configuration_so_it_may_have_a_space(fleet: FleetAdministration):
    named = {value for _, *values in options(files(fleet)[mosquitto.CONFIGURATION].decode()) for value in values}
    assert {"acl", "acl.coordinators", "ca.crt", "broker.crt", "broker.key", "revoked.crl"} <= named
    assert not any(value.startswith("/") for value in named)


def test_what_a_fleet_writes_is_what_a_broker_takes(fleet: FleetAdministration):
    assert broker_files.refused(files(fleet)) == ""


@pytest.mark.parametrize(
    "line",
    [
        "topic bogus x",
        "topic read",
        "topic read a/#/b",
        "topic read a+/b",
        "topic read a b",
        "user ",
        "user a b",
        "pattern read %u/#",
        "user a\rtopic readwrite #",
        "rubbish",
    ],
)
def test_a_line_that_is_none_of_an_acl_is_refused_and_named(fleet: FleetAdministration, line: str):
    bad = {**files(fleet), mosquitto.ACL: f"user pi-1\n{line}\n".encode()}
    assert broker_files.refused(bad).startswith("acl: line 2 is no line of an ACL: ")


@pytest.mark.parametrize("name", [mosquitto.CA, mosquitto.CERTIFICATE, mosquitto.KEY, mosquitto.REVOKED])
def test_a_file_that_was_torn_is_refused_and_named(fleet: FleetAdministration, name: str):
    good = files(fleet)
    assert broker_files.refused({**good, name: good[name][:100]}).startswith(f"{name}: ")


def test_a_certificate_of_another_key_is_refused(fleet: FleetAdministration):
    from edgefl.fleet.authority import key_pem, new_key

    bad = {**files(fleet), mosquitto.KEY: key_pem(new_key())}
    assert broker_files.refused(bad) == "broker.crt: it belongs to another key than broker.key"


@pytest.mark.broker
def test_a_running_broker_outlives_files_that_it_could_not_use(fleet: FleetAdministration, tmp_path: Path):
    """With real processes: the ACL is torn, SIGHUP comes, members go on; the next good one counts."""
    from secured_fleet import Secured

    secured = Secured(fleet, tmp_path, {"pi-1": fleet.add("pi-1", clock(), replace=True)})
    acl = fleet.folder.broker / mosquitto.ACL
    good, presence = acl.read_bytes(), topics.presence("default", "pi-1").encode()
    assert b"readwrite %b" % presence in good
    with broker(secured) as process:
        acl.write_bytes(b"user pi-1\ntopic bogus x\n")
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(2)
        device = Party(secured.port, secured.tls("pi-1"))
        assert device.connected == 0
        assert device.publish(topics.presence("default", "pi-1")) == NOBODY_LISTENS, "it has the rights that it had"
        acl.write_bytes(good.replace(b"readwrite %b" % presence, b"read %b" % presence))
        os.kill(process.pid, signal.SIGHUP)
        end = time.monotonic() + 20
        while device.publish(topics.presence("default", "pi-1")) == NOBODY_LISTENS:
            assert time.monotonic() < end, "the good ACL never counted"
        assert process.poll() is None
        device.close()


@pytest.mark.broker
@pytest.mark.parametrize("how", ["torn", "away"])
def test_a_running_broker_outlives_members_that_cannot_be_read(fleet: FleetAdministration, tmp_path: Path, how: str):
    """With real processes: it tells the sites their lists when SIGHUP comes."""
    from secured_fleet import Secured

    secured = Secured(fleet, tmp_path, {"pi-1": fleet.add("pi-1", clock(), replace=True)})
    members = fleet.folder.members
    good = members.read_bytes()
    with broker(secured) as process:
        members.write_bytes(good[: len(good) // 2])
        if how == "away":
            members.unlink()
            members.mkdir()
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(3)
        assert process.poll() is None
        device = Party(secured.port, secured.tls("pi-1"))
        assert device.connected == 0
        device.close()


def test_the_hourly_look_and_a_torn_file_end_no_broker(fleet: FleetAdministration, caplog: pytest.LogCaptureFixture):
    fleet.folder.members.write_text('{"format": "edgefl mem')
    assert unless_torn(lambda: fleet.refresh(clock())) is None
    assert "the broker goes on with what it has why=" in caplog.text
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is not a torn file
        unless_torn(lambda: 1 // 0)


@pytest.mark.broker
@pytest.mark.mosquitto
def test_a_broker_does_not_start_on_files_that_it_could_not_use(fleet: FleetAdministration):
    (fleet.folder.broker / mosquitto.ACL).write_bytes(b"rubbish\n")
    with (
        pytest.raises(ConfigError, match=r"mosquitto would not take acl: line 1 is no line of an ACL: 'rubbish'"),
        running(plan_of(fleet)),
    ):
        pass


@pytest.mark.broker
@pytest.mark.mosquitto
def test_the_log_of_an_earlier_start_is_kept_and_the_last_words_are_of_this_one(fleet: FleetAdministration):
    plan = plan_of(fleet)
    plan.log.write_text("why it ended yesterday\n")
    with running(plan) as started:
        text = plan.log.read_text()
        assert text.startswith("why it ended yesterday\n")
        assert "UTC: edgefl starts mosquitto 2." in text
        assert "yesterday" not in started.child.last_words()


def test_a_log_that_has_grown_large_makes_room(fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch):
    from edgefl.fleet import broker as brokers

    monkeypatch.setattr(brokers, "LOG_LIMIT", 100)
    log = fleet.folder.path / brokers.LOG
    log.write_text("x" * 101)
    brokers._begin_log(log, (2, 0))
    assert log.with_name("broker.log.1").read_text() == "x" * 101
    assert "x" * 101 not in log.read_text()
