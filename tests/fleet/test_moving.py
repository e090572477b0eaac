"""The broker moves: old and new addresses hold at once, devices learn the new one, and then the old one may go."""

import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import secured_fleet
from fleets import until
from logged import logged
from secured_fleet import EDGEFL, Secured, make

from device_agent import enrol
from edgefl.base.errors import ConfigError
from edgefl.fleet import moving, notices
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock, covers
from edgefl.fleet.folder import Settings
from edgefl.fleet.members import Member, MemberCertificate, MembersFile
from edgefl.fleet.notices import AGAIN, Notices
from edgefl.wire.messages import Addresses, Renew
from edgefl.wire.signing import Signer

DAY = timedelta(days=1)
RENEW = Renew(job="digits", run_id="a1b2")
RUN = """
[run]
name = "long"
rounds = 1000000
[task]
data = "digits"
model = "softmax"
partition = { kind = "iid", devices = 1 }
[algorithm]
name = "fedavg"
batches = 2
[rounds]
cohort = 1
quorum = 1
deadline = 5.0
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fleet = FleetAdministration.new("default", ["old.local"], 8883, clock())
    fleet.add("pi-01", clock())
    return fleet


def served(fleet: FleetAdministration, *hosts: str) -> bool:
    """Whether the broker's certificate is for these names, and for this machine's own."""
    return covers((fleet.folder.broker / "broker.crt").read_bytes(), [*hosts, "localhost", "127.0.0.1", "::1"])


def test_old_and_new_hold_at_once_and_the_certificate_is_for_both(fleet: FleetAdministration) -> None:
    assert served(fleet, "old.local")
    moving.move(fleet, ["new.local", "spare.local"], (), clock())
    addresses = [f"mqtts://{host}.local:8883" for host in ("new", "spare", "old")]
    assert list(map(str, FleetAdministration("default").settings.brokers)) == addresses
    assert served(fleet, "new.local", "spare.local", "old.local")
    kit = fleet.add("pi-02", clock())
    assert [kit.broker, *kit.also] == addresses
    moving.move(fleet, [], ["old.local", "spare.local"], clock())
    assert served(fleet, "new.local")
    assert FleetAdministration("default").settings.moves == 2


def test_the_same_move_again_changes_nothing_and_the_last_address_stays(fleet: FleetAdministration) -> None:
    moving.move(fleet, ["new.local"], (), clock())
    before = fleet.folder.settings.read_bytes()
    moving.move(fleet, ["new.local"], (), clock())
    assert fleet.folder.settings.read_bytes() == before
    moving.move(fleet, [], ["old.local"], clock())
    for first, drop, why in (
        ([], ["new.local"], "know no other"),
        ([], ["x.local"], "not reached by it"),
        (["a b"], [], "neither a host name"),
        ([f"n{number}.local" for number in range(9)], [], "8 addresses at most"),
    ):
        with pytest.raises(ConfigError, match=why):
            moving.move(fleet, first, drop, clock())


def test_a_kit_of_before_and_settings_of_before_read_as_they_are(fleet: FleetAdministration) -> None:
    written = json.loads(fleet.folder.settings.read_bytes())
    assert set(written) == {"format", "version", "fleet", "hosts", "port", "models", "trial"}
    member = json.loads(fleet.folder.members.read_bytes())["members"]["pi-01"]
    assert set(member) == {"key", "added", "certificates", "revoked", "site", "hosts", "port"}
    assert "also" not in json.loads(fleet.add("pi-02", clock()).model_dump_json())
    settings = Settings.model_validate(written)
    assert (settings.device_certificate_days, settings.grace_days, settings.moves) == (90, 180, 0)
    assert settings.lifetime == 90 * DAY


def test_loopback_alone_is_where_a_trial_listens() -> None:
    def bind(*hosts: str) -> str | None:
        return Settings(fleet="f", hosts=hosts, addresses=hosts).bind

    assert bind("127.0.0.1") == "127.0.0.1"
    assert bind("localhost", "127.0.0.1") == "127.0.0.1"
    assert bind("localhost") == "localhost"
    assert bind("server.local", "127.0.0.1") is None
    assert Settings(fleet="f", hosts=("127.0.0.1", "server")).bind == "127.0.0.1"


def test_a_member_is_told_what_it_does_not_know_and_others_nothing() -> None:
    now = clock()
    one = Member(key=Signer.new().key, added=now, certificates=(MemberCertificate(serial="1", expires=now + DAY),))
    stays = Settings(fleet="f", hosts=("old",))
    moved = Settings(fleet="f", hosts=("new", "old"), addresses=("new", "old"), moves=2)
    told = Addresses(number=2, brokers=("mqtts://new:8883", "mqtts://old:8883"))
    assert notices.notices(stays, one, 0, now, RENEW) == ()
    assert notices.notices(moved, one, 1, now, RENEW) == (told,)
    assert notices.notices(moved, one, 2, now, RENEW) == ()
    assert notices.notices(moved, one.model_copy(update={"site": "north"}), 1, now, RENEW) == ()
    assert notices.notices(moved, one.model_copy(update={"revoked": now}), 1, now, RENEW) == ()
    permitted = one.model_copy(update={"renew_until": now + DAY})
    assert notices.notices(stays, permitted, 0, now, RENEW) == (RENEW,)
    assert notices.notices(stays, permitted, 0, now + DAY, RENEW) == ()


def test_a_device_that_does_not_follow_is_told_again_after_a_while(fleet: FleetAdministration) -> None:
    board = Notices(fleet.folder, MembersFile(fleet.folder.members))

    def due(moves: int, now: float) -> list[str]:
        return [notice.kind for _, notice in board.due([("pi-01", moves), ("stranger", 0)], now, RENEW)]

    assert due(0, 0.0) == []
    moving.move(fleet, ["new.local"], (), clock())
    assert due(0, 1.0) == ["addresses"]
    assert due(0, 2.0) == []
    assert due(0, 1.0 + AGAIN) == ["addresses"]
    assert due(1, 1.0 + 3 * AGAIN) == []
    moving.move(fleet, ["newer.local"], (), clock())
    assert due(1, 2.0 + 3 * AGAIN) == ["addresses"], "another move is news"
    fleet.permit("pi-01", clock() + DAY, clock())
    assert due(2, 3.0 + 3 * AGAIN) == ["renew"]
    fleet.folder.settings.write_text("half writ")
    assert due(0, 9.0 + 9 * AGAIN) == ["addresses", "renew"], "as it was when it could last be read"


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-01")


@contextmanager
def running(secured: Secured, words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with logged([*EDGEFL, *words], log, env=secured.environment, cwd=secured.state) as process:
        yield process


@pytest.mark.broker
def test_a_broker_that_runs_shows_the_certificate_with_the_new_name(secured: Secured) -> None:
    def shown() -> bool:
        pem = ssl.get_server_certificate(("127.0.0.1", secured.port), timeout=20)
        return covers(pem.encode(), ["server.test", "localhost", "127.0.0.1", "::1"])

    with secured_fleet.broker(secured):
        assert not shown()
        assert "restart `edgefl broker start`" in secured.edgefl("fleet", "host", "server.test").stdout
        until(shown, 60)


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.timeout(240)
def test_devices_of_a_running_fleet_follow_it_and_renew_when_they_are_told(secured: Secured, tmp_path: Path) -> None:
    """From 127.0.0.1 to localhost, which are two names to a certificate."""
    path = enrol.install(secured.kits["pi-01"], tmp_path / "devices", "digits")
    tls, known = path.parent / enrol.TLS, path.parent / "brokers.json"
    (tmp_path / "run.toml").write_text(RUN)
    before = tls.read_bytes()
    with ExitStack() as until_done:
        until_done.enter_context(secured_fleet.broker(secured))
        until_done.enter_context(
            running(secured, ["coordinator", "start", "run.toml", "--no-rehearse"], tmp_path / "coordinator.log")
        )
        with running(secured, ["agent", "start", str(path)], tmp_path / "first.log"):
            until(lambda: "asked job=long" in (tmp_path / "first.log").read_text(), 90)
            done = secured.edgefl("fleet", "host", "localhost")
            assert done.returncode == 0, done.stderr
            assert "fleet host --drop 127.0.0.1" in done.stdout
            until(known.exists, 60)
            told = json.loads(known.read_text())
            assert told["brokers"] == [f"mqtts://{host}:{secured.port}" for host in ("localhost", "127.0.0.1")]
            assert secured.edgefl("fleet", "renew", "pi-01").returncode == 0
            until(lambda: tls.read_bytes() != before, 60)
            assert secured.fleet.members.active()["pi-01"].renew_until is None
        assert secured.edgefl("fleet", "host", "--drop", "127.0.0.1").returncode == 0
        with running(secured, ["agent", "start", str(path)], tmp_path / "second.log"):
            until(lambda: "asked job=long" in (tmp_path / "second.log").read_text(), 90)
        assert f"broker=mqtts://localhost:{secured.port} or mqtts://127.0.0.1" in (tmp_path / "second.log").read_text()
