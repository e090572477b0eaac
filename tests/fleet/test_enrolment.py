"""A device makes its own keys and comes with a token: once, in time, under its name, to its own fleet."""

import json
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from secured_fleet import EDGEFL, Secured, enrolling, make

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet import enrolment, revocation, tokens
from edgefl.fleet.authority import Authority, clock, new_key, request
from edgefl.fleet.tokens import JoinToken
from edgefl.wire.signing import Signer

HOUR = timedelta(hours=1)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-01")


@pytest.fixture
def listening(secured: Secured) -> Iterator[list[str]]:
    with enrolling(secured.fleet) as joined:
        yield joined


def token(secured: Secured, name: str = "pi-02", **more: Any) -> JoinToken:
    return tokens.issue(secured.fleet, name, clock(), HOUR, **{"replace": False, "data": None, **more})


def asking(word: JoinToken, **instead: str) -> bytes:
    """A request as a device makes it."""
    signer, asked = Signer.new(), request(word.name, new_key())
    proof = enrolment.base64.urlsafe_b64encode(signer.signature(enrolment.PREFIX + asked)).decode()
    about = {"secret": word.secret, "name": word.name, "request": asked.decode(), "key": signer.key, "proof": proof}
    return json.dumps({**about, **instead}).encode()


def test_a_token_makes_a_member_whose_keys_nobody_else_has(secured: Secured, listening: list[str]) -> None:
    word = token(secured, data={"source": "digits"})
    kit = enrolment.enrol(tokens.read(word.text()))
    assert listening == ["pi-02"]
    member = secured.fleet.members.active()["pi-02"]
    assert (kit.name, kit.broker, kit.data) == ("pi-02", str(secured.address), {"source": "digits"})
    assert kit.coordinator == secured.fleet.coordinator_key
    everything = b"".join(path.read_bytes() for path in secured.fleet.folder.path.rglob("*") if path.is_file())
    for secret in (kit.key, kit.device_key, word.secret):
        assert secret.encode() not in everything
    assert member.key.encode() in everything


def test_a_token_counts_once_also_after_a_restart(secured: Secured) -> None:
    word = token(secured)
    enrolment.admitted(secured.fleet, asking(word), clock())
    with pytest.raises(RemoteError, match="was used already") as refused:
        enrolment.admitted(type(secured.fleet)("default"), asking(word), clock())
    assert refused.value.code == "enrolment.token"


def test_who_is_revoked_does_not_come_back_by_a_token_of_before(secured: Secured) -> None:
    word, other = token(secured, "pi-01", replace=True), token(secured, "pi-02")
    revocation.revoke(secured.fleet, "pi-01")
    with pytest.raises(RemoteError, match="not known") as refused:
        enrolment.admitted(secured.fleet, asking(word), clock())
    assert refused.value.code == "enrolment.token"
    enrolment.admitted(secured.fleet, asking(other), clock())
    assert list(secured.fleet.members.active()) == ["pi-02"]


@pytest.mark.parametrize("wrong", ["late", "another name", "another secret", "another proof", "garbage"])
def test_whoever_has_no_good_token_is_refused_and_the_token_stays_good(secured: Secured, wrong: str) -> None:
    word, now = token(secured), clock()
    other = {
        "another name": {"name": "pi-03"},
        "another secret": {"secret": "x" * 32},
        "another proof": {"proof": "AAAA"},
    }
    message = b"\xff" if wrong == "garbage" else asking(word, **other.get(wrong, {}))
    with pytest.raises(RemoteError):
        enrolment.admitted(secured.fleet, message, now + 2 * HOUR if wrong == "late" else now)
    assert set(secured.fleet.members.active()) == {"pi-01"}
    assert enrolment.admitted(secured.fleet, asking(word), now)[0] == "pi-02"


def test_a_member_is_replaced_only_if_that_is_meant(secured: Secured) -> None:
    with pytest.raises(ConfigError, match="is a member already: --replace"):
        token(secured, "pi-01")
    before = secured.fleet.members.members["pi-01"].certificates
    enrolment.admitted(secured.fleet, asking(token(secured, "pi-01", replace=True)), clock())
    after = secured.fleet.members.members["pi-01"].certificates
    assert [one.serial for one in after[:1]] == [before[0].serial]
    assert (after[0].revoked is not None, after[1].revoked) == (True, None)


def test_a_server_with_another_authority_learns_nothing(secured: Secured, listening: list[str]) -> None:
    stranger = Authority.new("default", clock())
    word = token(secured).model_copy(update={"authority": stranger.fingerprint})
    with pytest.raises(ConfigError, match="has another authority"):
        enrolment.enrol(word)
    assert tokens.pending(secured.fleet, clock()) == {"pi-02"}, "the secret was not said"


def test_what_does_not_speak_properly_is_left_and_others_are_served(secured: Secured, listening: list[str]) -> None:
    where = "127.0.0.1", secured.fleet.settings.enrolment_port
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    for bytes_ in (struct.pack(">I", 1 << 31), struct.pack(">I", 100) + b"{", b"\0"):
        with socket.create_connection(where) as plain, anybody.wrap_socket(plain) as line:
            line.sendall(bytes_)
    with socket.create_connection(where) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert enrolment.enrol(token(secured)).name == "pi-02"


def test_an_address_that_comes_too_often_is_not_heard_for_a_while() -> None:
    visits = enrolment.VisitCounts()
    heard = [visits.welcome("10.0.0.1", [], 0.0) for _ in range(enrolment.PER_MINUTE + 1)]
    assert heard == [True] * enrolment.PER_MINUTE + [False]
    assert visits.welcome("10.0.0.2", [], 1.0)
    assert visits.welcome("10.0.0.1", [], 61.0)
    for number in range(2 * enrolment.ADDRESSES):
        visits.welcome(str(number), [], 62.0)
    assert len(visits._counts) == enrolment.ADDRESSES


@pytest.mark.parametrize("text", ["", "edgefl1-", "edgefl1-e30", "kit", "edgefl1-" + "A" * 2000])
def test_half_a_token_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="this is no token, or not the whole of it"):
        tokens.read(text)


def test_two_commands_are_enough_and_what_a_token_gave_is_not_lost(secured: Secured) -> None:
    command = [*EDGEFL, "fleet", "add", "pi-07", "--token"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=secured.environment) as server,
        ExitStack() as until_done,
    ):
        assert server.stdout is not None
        until_done.callback(server.kill)  # whatever goes wrong: it would wait for its device for ever
        lines = iter(server.stdout.readline, "")
        word = next(match[1] for line in lines if (match := re.search(r"enrol --token (\S+)", line)))
        assert any("waiting for 'pi-07'" in line for line in lines)
        done = secured.edgefl("agent", "enrol", "--token", word, "--install-only")
        assert done.returncode == 2
        assert "names no data" in done.stderr
        assert server.wait(60) == 0
    kit = secured.state / "edgefl" / "pi-07.kit"
    assert kit.stat().st_mode & 0o777 == 0o600
    done = secured.edgefl("agent", "enrol", str(kit), "--install-only", "--data", "digits")
    assert done.returncode == 0, done.stderr
    home = secured.state / "edgefl" / "pi-07"
    assert "agent start " in done.stdout
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}
    again = secured.edgefl("agent", "enrol", "--token", word, "--install-only")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "is not reachable" in again.stderr
