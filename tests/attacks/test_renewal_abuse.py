"""Nobody has more of renewed certificates than a member that needs one: bad requests, endless ones, others' names.

The coordinator, the authority and the list of members are real, and so is the device's side; between them is a broker
in memory.
"""

import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID
from fleets import until
from malformed_requests import MALFORMED
from members_run import MEMBER, OTHER, MembersRun

from coordinator.shell.renewals import Renewals
from device_agent.shell.renewal import CertificateRenewal
from edgefl.base.errors import WireError
from edgefl.fleet import authority
from edgefl.fleet.administration import DEVICE
from edgefl.fleet.authority import Authority, clock
from edgefl.wire import topics
from edgefl.wire.messages import DeclinedMessage, Renewal, Renewed, frame
from edgefl.wire.tls import Tls
from edgefl.wire.transport import Message


class Renewing(MembersRun):
    """MEMBER's certificate ends soon, OTHER's does not."""

    def ask(self, name: str, pem: str) -> None:
        self.puppets[name].say(frame(Renewal(job="fleet", request=pem)))

    def settled(self) -> None:
        """What was asked for before was signed or refused: the work is done in its order, and so are messages."""
        mark = f"settled {len(self.events)}"
        self.puppets[OTHER].say(frame(DeclinedMessage(job="fleet", round=0, reason=mark)))
        until(lambda: any(event.get("reason") == mark for event in list(self.events)))
        done = threading.Event()
        self.coordinator.shell.background.start(lambda _put: done.set())
        assert done.wait(60)

    def certificates(self, name: str) -> int:
        return len(self.fleet.members.members[name].certificates)


@pytest.fixture
def renewing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renewing]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    playing = Renewing(timedelta(days=80))
    yield playing
    playing.close()


def asked(name: str) -> str:
    return authority.request(name, authority.new_key()).decode()


def test_whoever_asks_all_the_time_has_one_certificate_more_and_who_needs_none_has_none(renewing: Renewing) -> None:
    for _ in range(20):
        renewing.ask(MEMBER, asked(MEMBER))
        renewing.ask(OTHER, asked(OTHER))
    renewing.settled()
    assert (renewing.certificates(MEMBER), renewing.certificates(OTHER)) == (2, 1)
    until(lambda: renewing.happened("certified"))
    assert [one["device"] for one in renewing.happened("certified")] == [MEMBER]


@pytest.mark.parametrize("name", [OTHER, "coordinator", "localhost"])
def test_a_request_for_another_s_name_gives_a_certificate_of_one_s_own(name: str, renewing: Renewing) -> None:
    heard: list[bytes] = []
    ear = renewing.broker.client("ear")
    ear.start(lambda event: heard.append(bytes(event.payload)) if isinstance(event, Message) else None)
    ear.subscribe(topics.down("default", "fleet", MEMBER))
    renewing.ask(MEMBER, asked(name))
    until(lambda: any(b"BEGIN CERTIFICATE" in one for one in heard))
    pem = next(one for one in heard if b"BEGIN CERTIFICATE" in one)
    issued = authority.read_certificate(pem[pem.index(b"-----BEGIN") :])
    assert [each.value for each in issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [MEMBER]
    assert (renewing.certificates(MEMBER), renewing.certificates(OTHER)) == (2, 1)
    assert "coordinator" not in renewing.fleet.members.members


def test_malformed_requests_end_nothing_and_are_held_against_their_sender(renewing: Renewing) -> None:
    for pem in (*MALFORMED.values(), "A" * 4096, ""):
        renewing.ask(MEMBER, pem)
    renewing.settled()
    until(lambda: renewing.happened("quarantined"))
    assert {one["device"] for one in renewing.happened("quarantined")} == {MEMBER}
    assert renewing.certificates(MEMBER) == 1
    assert renewing.thread.is_alive()


def test_each_malformed_request_is_refused_by_itself() -> None:
    for how, pem in MALFORMED.items():
        with pytest.raises(ValueError, match=r"."):
            pytest.fail(f"signed: {how} {authority.requested_key(pem.encode())}")


def test_a_huge_request_is_no_message(renewing: Renewing) -> None:
    renewing.puppets[MEMBER].say(frame(Renewal.model_construct(job="fleet", request="A" * 5000)))
    renewing.settled()
    assert renewing.refused("wire.malformed") == 1
    assert renewing.certificates(MEMBER) == 1


def test_a_certificate_that_one_member_sends_to_another_is_not_heard(renewing: Renewing) -> None:
    """On the topic of the coordinator's answers a member cannot write; what it says on its own is no such message."""
    renewing.puppets[MEMBER].say(frame(Renewed(certificate="x")))
    renewing.settled()
    assert renewing.refused("wire.malformed") == 1


def test_one_who_was_revoked_gets_no_certificate(renewing: Renewing) -> None:
    renewing.fleet.revoke(MEMBER, clock())
    renewing.ask(MEMBER, asked(MEMBER))
    renewing.settled()
    assert renewing.certificates(MEMBER) == 1
    assert not renewing.happened("certified")
    until(lambda: renewing.refused("device.revoked"))


def test_the_work_itself_signs_for_no_one_who_was_revoked_meanwhile(renewing: Renewing) -> None:
    put: list[Any] = []
    work = Renewals("default").work(MEMBER, asked(MEMBER), 0.0)
    renewing.fleet.revoke(MEMBER, clock())
    work(put.append)
    assert not put


# ---- a coordinator that was robbed of its key, but not of the authority ----------------------------------------------


@pytest.fixture
def device(tmp_path: Path) -> CertificateRenewal:
    """One that has asked for a new certificate, and waits."""
    own, begun, file, ca = authority.new_key(), clock() - timedelta(days=80), tmp_path / "tls.pem", tmp_path / "ca.crt"
    fleets = Authority.new("default", begun)
    file.write_bytes(authority.key_pem(own) + fleets.client(MEMBER, own.public_key(), begun, DEVICE).pem)
    ca.write_bytes(fleets.pem)
    renewal = CertificateRenewal(MEMBER, Tls(ca=ca, certificate=file, key=file), lambda: clock().timestamp())
    assert renewal.request()
    return renewal


def test_a_device_takes_no_certificate_of_another_authority(device: CertificateRenewal) -> None:
    """With such a certificate it would never be let in again."""
    assert device._key is not None
    assert device.file is not None
    before = device.file.read_bytes()
    key = authority.serialization.load_pem_private_key(device._key, None)
    assert isinstance(key, authority.ec.EllipticCurvePrivateKey)
    stranger = Authority.new("default", clock())
    with pytest.raises(WireError, match="not of the authority of this fleet"):
        device.take(stranger.client(MEMBER, key.public_key(), clock(), DEVICE).pem.decode())
    assert device.file.read_bytes() == before


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_whatever_bit_of_a_certificate_is_changed_the_device_keeps_its_own_and_runs_on(
    device: CertificateRenewal,
) -> None:
    assert device.file is not None
    before = device.file.read_bytes()
    der = ssl.PEM_cert_to_DER_cert(before[before.index(b"-----BEGIN CERT") :].decode())
    for at in range(len(der)):
        data = bytearray(der)
        data[at] ^= 1 << at % 8
        with pytest.raises(WireError):
            device.take(ssl.DER_cert_to_PEM_cert(bytes(data)))
    assert device.file.read_bytes() == before
