"""A device whose certificate has ended renews it with its key for messages: in time, for itself, once."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import secured_fleet
from fleets import until
from secured_fleet import EDGEFL, Secured, enrolling, make

from device_agent import enrol
from edgefl.base.errors import RemoteError
from edgefl.fleet import enrolment, late_renewal, revocation
from edgefl.fleet.authority import clock, new_key, read_certificate, request
from edgefl.fleet.kit import Kit
from edgefl.fleet.members import Member, MemberCertificate
from edgefl.fleet.renewals import may_renew
from edgefl.wire import key_file
from edgefl.wire.signing import Signer

DAY = timedelta(days=1)
NAME = "pi-01"


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path)


@pytest.fixture
def listening(secured: Secured) -> Iterator[list[str]]:
    with enrolling(secured.fleet) as joined:
        yield joined


def member(secured: Secured, ended: timedelta = timedelta(hours=1), name: str = NAME) -> Kit:
    """A device whose certificate ended so long ago."""
    secured.kits[name] = secured.fleet.add(name, clock() - secured.fleet.settings.lifetime - ended)
    return secured.kits[name]


def signer(kit: Kit) -> Signer:
    return key_file.checked(kit.device_key.encode(), 0o600, kit.name, "the device's", lost="")


def ask(secured: Secured, kit: Kit, who: Signer | None = None, name: str = NAME) -> str:
    """Ask as the agent of this kit does, over TLS."""
    asked = request(name, new_key()).decode()
    sign, fleet = (who or signer(kit)).signature, secured.fleet.folder.name
    return late_renewal.ask(secured.address, secured.tls(NAME), fleet=fleet, name=name, request=asked, sign=sign)


def attend(secured: Secured, kit: Kit, **instead: str) -> tuple[str, bytes]:
    """Ask without a network; `instead` of what a device says."""

    def exchange(said: bytes) -> bytes:
        nonce, asked = base64.b64decode(json.loads(said)["nonce"]), request(NAME, new_key()).decode()
        signed = signer(kit).signature(late_renewal.statement(secured.fleet.folder.name, NAME, nonce, asked))
        return json.dumps({"request": asked, "proof": base64.urlsafe_b64encode(signed).decode(), **instead}).encode()

    wish = json.dumps({"kind": "renewal", "name": NAME}).encode()
    return late_renewal.attend(secured.fleet, wish, exchange, clock())


def test_a_device_whose_certificate_has_ended_gets_another_one_over_tls(secured: Secured, listening: list[str]) -> None:
    kit = member(secured)
    pem = ask(secured, kit)
    new, stands = read_certificate(pem.encode()), secured.fleet.members.active()[NAME]
    assert new.not_valid_after_utc == stands.expires > clock() + 89 * DAY
    assert len(stands.certificates) == 2
    assert not listening, "nobody has joined"


def test_it_lasts_as_long_as_the_fleet_says(secured: Secured) -> None:
    kit = member(secured)
    secured.fleet.change(device_certificate_days=730)
    assert read_certificate(attend(secured, kit)[1]).not_valid_after_utc > clock() + 729 * DAY


def test_another_key_a_stranger_and_who_was_revoked_get_none(secured: Secured, listening: list[str]) -> None:
    kit = member(secured)
    for who, name in ((Signer.new(), NAME), (None, "pi-02"), (None, "coordinator"), (None, "../pi-01")):
        with pytest.raises(RemoteError, match="no member of this name and key"):
            ask(secured, kit, who, name)
    assert len(secured.fleet.members.members[NAME].certificates) == 1
    revocation.revoke(secured.fleet, NAME)
    with pytest.raises(RemoteError, match="no member of this name and key"):
        ask(secured, kit)
    assert all(one.revoked for one in secured.fleet.members.members[NAME].certificates)


def test_a_proof_counts_for_its_own_connection_request_and_fleet_alone(secured: Secured) -> None:
    kit = member(secured)
    old = late_renewal.statement("default", NAME, bytes(32), request(NAME, new_key()).decode())
    for statement in (old, b"edgefl message 1\0" + old, old[len(late_renewal.PREFIX) :]):
        proof = base64.urlsafe_b64encode(signer(kit).signature(statement)).decode()
        with pytest.raises(RemoteError, match="no member of this name and key"):
            attend(secured, kit, proof=proof)
    with pytest.raises(RemoteError, match="no member of this name and key"):
        attend(secured, kit, request=request(NAME, new_key()).decode())
    assert len(secured.fleet.members.members[NAME].certificates) == 1


def test_after_the_grace_period_a_person_has_to_say_so_once(secured: Secured) -> None:
    kit = member(secured, ended=181 * DAY)
    with pytest.raises(RemoteError, match=r"more than 180 days ago: `edgefl fleet renew NAME`"):
        attend(secured, kit)
    secured.fleet.permit(NAME, clock() - DAY, clock())
    with pytest.raises(RemoteError, match="more than 180 days"):
        attend(secured, kit)
    secured.fleet.permit(NAME, clock() + DAY, clock())
    attend(secured, kit)
    with pytest.raises(RemoteError, match="it needs none"):
        attend(secured, kit)
    assert secured.fleet.members.active()[NAME].renew_until is None


def test_a_fleet_may_have_a_shorter_grace_period(secured: Secured) -> None:
    kit = member(secured, ended=8 * DAY)
    secured.fleet.change(grace_days=7)
    with pytest.raises(RemoteError, match="more than 7 days"):
        attend(secured, kit)


@pytest.mark.parametrize("said", [{"request": "nothing"}, {"proof": "é"}, {"proof": "x" * 101}, {"more": "x"}])
def test_what_cannot_be_read_is_refused(secured: Secured, said: dict[str, str]) -> None:
    with pytest.raises(RemoteError) as refused:
        attend(secured, member(secured), **said)
    assert refused.value.code in ("renewal.malformed", "renewal.unknown")


def test_an_older_listener_refuses_and_the_device_can_say_so(
    secured: Secured, listening: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "_kind", lambda _: "")  # as it was before there were kinds
    with pytest.raises(RemoteError, match="the request cannot be used"):
        ask(secured, member(secured))


def test_a_clock_that_is_wrong_is_named(secured: Secured, listening: list[str]) -> None:
    member(secured)
    files = secured.tls(NAME)
    code = (
        "from edgefl.fleet import late_renewal; from edgefl.wire.address import parse; from edgefl.wire.tls import Tls;"
        f"late_renewal.ask(parse('{secured.address}'), Tls(ca='{files.ca}'), fleet='default', name='pi-01',"
        " request='', sign=bytes)"
    )
    run = ["faketime", "-f", "+3000d", sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2])
    assert "set this clock right (timedatectl)" in done.stderr.splitlines()[-1]


@pytest.mark.broker
@pytest.mark.timeout(180)
def test_an_agent_whose_certificate_has_ended_comes_back_by_itself(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    kit = member(secured)
    path = enrol.install(kit, tmp_path / "device", "digits")
    log, tls = tmp_path / "agent.log", path.parent / "tls.pem"
    ended = tls.read_bytes()
    with secured_fleet.broker(secured), log.open("wb") as written:
        command = [*EDGEFL, "agent", "start", str(path), "--set", "agent.connect_timeout=5"]
        with subprocess.Popen(command, stderr=written, env=secured.environment, cwd=secured.state) as agent:
            until(lambda: ": connected device=pi-01" in log.read_text(), 60)
            assert agent.poll() is None
            agent.terminate()
            agent.wait(60)
    told = log.read_text()
    assert "our own certificate" in told
    assert "has a new certificate device=pi-01" in told
    assert tls.read_bytes() != ended


def test_what_a_member_may_have_depends_on_dates_alone() -> None:
    now = clock()

    def verdict(left: timedelta, **more: Any) -> tuple[bool, str]:
        one = Member(key=Signer.new().key, added=now, certificates=(MemberCertificate(serial="1", expires=now + left),))
        about = {"permit": None, **more}
        return may_renew(one, now, 90 * DAY, 180 * DAY, **about)

    assert verdict(46 * DAY) == (False, "it needs none")
    assert verdict(44 * DAY)[0]
    assert verdict(-180 * DAY)[0]
    assert not verdict(-181 * DAY)[0]
    assert verdict(-999 * DAY, permit=now + DAY)[0]
    assert verdict(46 * DAY, permit=now + DAY)[0]
    assert not verdict(46 * DAY, permit=now)[0]
    assert not may_renew(None, now, DAY, DAY, now + DAY).granted
