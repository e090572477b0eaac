"""Whoever has no token stays out of a fleet, and keeps nobody out of it: guesses, bad requests, silence, crowds."""

import base64
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from malformed_requests import MALFORMED
from secured_fleet import Secured, enrolling, make

from edgefl.base.errors import RemoteError
from edgefl.fleet import claiming, claims, enrolment, revocation, tokens
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock, new_key, request
from edgefl.fleet.tokens import ExpectedDevice, JoinToken
from edgefl.wire.signing import Signer

HOUR = timedelta(hours=1)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(enrolment, "PER_MINUTE", 1000)  # all of this is one address
    return make(tmp_path, "pi-01")


@pytest.fixture
def listening(secured: Secured) -> Iterator[list[str]]:
    with enrolling(secured.fleet) as joined:
        yield joined


def token(secured: Secured, name: str = "pi-02") -> JoinToken:
    return tokens.issue(secured.fleet, name, clock(), HOUR, replace=False, data=None)


def asking(secret: str, name: str, pem: str | None = None) -> bytes:
    """A request of somebody with this secret; its proof is right."""
    signer, asked = Signer.new(), pem or request(name, new_key()).decode()
    proof = base64.urlsafe_b64encode(signer.signature(enrolment.PREFIX + asked.encode())).decode()
    return json.dumps({"secret": secret, "name": name, "request": asked, "key": signer.key, "proof": proof}).encode()


def connected(secured: Secured) -> ssl.SSLSocket:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", secured.fleet.settings.enrolment_port), 20)
    return anybody.wrap_socket(plain)


def said(secured: Secured, message: bytes) -> None:
    """Say this at the listener, and wait until it has dealt with it."""
    with connected(secured) as line, suppress(OSError):
        line.sendall(struct.pack(">I", len(message)) + message)
        while line.recv(4096):
            pass


@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_request_ends_neither_the_listener_nor_a_token(
    how: str, secured: Secured, listening: list[str]
) -> None:
    word = token(secured)
    said(secured, asking(word.secret, word.name, MALFORMED[how]))
    assert not listening
    assert enrolment.enrol(word).name == "pi-02"


def test_guessed_secrets_and_other_names_let_nobody_in(secured: Secured) -> None:
    word = token(secured)
    for secret, name in (("", "pi-02"), (word.secret[:-1], "pi-02"), (word.secret, "pi-01"), (word.secret, "PI-02"),
                         (word.secret, "coordinator"), (word.secret, "../pi-02"), ("é" * 32, "pi-02")):  # fmt: skip
        with pytest.raises(RemoteError):
            enrolment.admitted(secured.fleet, asking(secret, name), clock())
    assert set(secured.fleet.members.members) == {"pi-01"}
    assert tokens.pending(secured.fleet, clock()) == {"pi-02"}


def test_of_many_who_come_with_one_token_at_the_same_time_one_gets_in(secured: Secured) -> None:
    word = token(secured)

    def try_it(_: int) -> bool:
        with suppress(RemoteError):
            enrolment.admitted(secured.fleet, asking(word.secret, word.name), clock())
            return True
        return False

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(try_it, range(8))) == [False] * 7 + [True]
    assert len(secured.fleet.members.members["pi-02"].certificates) == 1


def test_a_revocation_while_a_device_comes_with_its_token_is_never_undone(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when the token is used up and the device is not a member yet: it waits, and then sends it away."""
    word = tokens.issue(secured.fleet, "pi-01", clock(), HOUR, replace=True, data=None)
    redeem, revoking = tokens.redeem, list[Thread]()

    def interrupted(*request: Any) -> ExpectedDevice | None:  # Any: whatever it is asked
        expected = redeem(*request)
        revoking.append(Thread(target=revocation.revoke, args=(FleetAdministration("default"), "pi-01")))
        revoking[0].start()
        revoking[0].join(1)  # time enough to get between, if there is a way
        return expected

    monkeypatch.setattr(tokens, "redeem", interrupted)
    enrolment.admitted(secured.fleet, asking(word.secret, word.name), clock())
    revoking[0].join(60)
    member = secured.fleet.members.members["pi-01"]
    assert member.revoked is not None
    assert all(certificate.revoked for certificate in member.certificates), "the new one too"


def test_silent_connections_keep_nobody_waiting(
    secured: Secured, listening: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "AT_ONCE_FROM_ONE", 20)
    where = "127.0.0.1", secured.fleet.settings.enrolment_port
    with ExitStack() as held:
        for _ in range(8):  # some say nothing at all, some nothing after the handshake, some one byte of it
            held.enter_context(socket.create_connection(where, 20))
            held.enter_context(connected(secured)).sendall(b"\0")
        assert enrolment.enrol(token(secured)).name == "pi-02"
    assert listening == ["pi-02"]


def test_a_crowd_from_one_address_leaves_room_for_others() -> None:
    visits, present = enrolment.VisitCounts(), list[str]()
    for _ in range(100):
        if visits.welcome("10.0.0.1", present, 0.0):
            present.append("10.0.0.1")
    assert len(present) == enrolment.AT_ONCE_FROM_ONE
    assert visits.welcome("10.0.0.2", present, 0.0)
    assert not visits.welcome("10.0.0.3", ["10.0.0.4"] * enrolment.AT_ONCE, 0.0)


def test_a_huge_request_is_refused_by_its_length(secured: Secured, listening: list[str]) -> None:
    with connected(secured) as line, suppress(OSError):
        line.sendall(struct.pack(">I", 1 << 31))
        answer = b"".join(iter(lambda: line.recv(4096), b""))
        assert b"CERTIFICATE" in answer, "the authority, and then it hangs up"
    said(secured, asking("x" * 32, "pi-02", "-----BEGIN CERTIFICATE REQUEST-----\n" + "A" * 60_000))
    assert enrolment.enrol(token(secured)).name == "pi-02"


def test_who_speaks_an_older_tls_is_not_answered(secured: Secured, listening: list[str]) -> None:
    older = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    older.check_hostname, older.verify_mode = False, ssl.CERT_NONE
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    where = "127.0.0.1", secured.fleet.settings.enrolment_port
    with socket.create_connection(where, 20) as plain, pytest.raises(ssl.SSLError):
        older.wrap_socket(plain)
    assert not listening


@pytest.mark.parametrize("kind", ["renewal", "claim"])
@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_renewal_or_claim_ends_the_listener_for_nobody(
    kind: str, how: str, secured: Secured, listening: list[str]
) -> None:
    word = claims.issue(secured.fleet, 1, clock() + HOUR, clock(), {})
    about = {"kind": kind, "name": "pi-01", "secret": word.secret, "serial": "s", "host": "h", "key": "k", "proof": ""}
    said(secured, json.dumps({**about, "request": MALFORMED[how]}).encode())
    said(secured, json.dumps({"kind": kind, "name": "pi-01"}).encode())
    said(secured, json.dumps({"kind": [kind]}).encode())
    assert not list(claims.waiting(secured.fleet, clock()))
    assert len(secured.fleet.members.members["pi-01"].certificates) == 1
    assert enrolment.enrol(token(secured)).name == "pi-02"
    assert listening == ["pi-02"]


def test_of_a_claim_one_address_makes_no_more_wait_than_its_connections_allow(secured: Secured) -> None:
    """Whoever has the word fills at most twice its devices, at twenty a minute, and a person sees from where."""
    word = claims.issue(secured.fleet, 2, clock() + HOUR, clock(), {})
    refused = list[str]()
    for number in range(10):
        signer, asked = Signer.new(), request("x", new_key()).decode()
        about = word.secret, f"x-{number}", "", "", asked
        proof = base64.urlsafe_b64encode(signer.signature(claiming.statement(*about))).decode()
        fields = dict(zip(("secret", "name", "serial", "host", "request"), about, strict=True))
        message = json.dumps({"kind": "claim", **fields, "key": signer.key, "proof": proof}).encode()
        try:
            claiming.attend(secured.fleet, message, "10.0.0.1", clock())
        except RemoteError as error:
            refused.append(error.code)
    assert refused == ["claim.full"] * 6
    assert {one.address for _, one in claims.waiting(secured.fleet, clock())} == {"10.0.0.1"}
    assert set(secured.fleet.members.members) == {"pi-01"}
