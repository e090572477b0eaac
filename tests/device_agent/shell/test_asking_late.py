"""An agent whose certificate has ended asks for another one by itself, ever more slowly, and goes on with it."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from device_agent.shell.late_renewal import FIRST, LONGEST, LateRenewal, RenewedLate
from device_agent.shell.renewal import CertificateRenewal
from edgefl.base.errors import RemoteError
from edgefl.fleet import authority
from edgefl.fleet.authority import Authority
from edgefl.system.background import Work
from edgefl.wire.address import Address
from edgefl.wire.signing import Signer
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionLost

NOW = authority.clock()
AUTHORITY = Authority.new("default", NOW - timedelta(days=400))
ENDED = ConnectionLost("our own certificate has expired", certificate="ended")
ADDRESSES = Address("mqtts", "old.local", 8883), Address("mqtts", "new.local", 8883)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return NOW.timestamp() + self.at


class Device:
    """One whose certificate ended yesterday, at listeners that the test plays."""

    def __init__(self, folder: Path, answer: Callable[[Address, str], str]) -> None:
        key, self.file, ca = authority.new_key(), folder / "tls.pem", folder / "ca.crt"
        begun = NOW - timedelta(days=91)
        issued = AUTHORITY.client("pi-01", key.public_key(), begun, timedelta(days=90))
        self.file.write_bytes(authority.key_pem(key) + issued.pem)
        ca.write_bytes(AUTHORITY.pem)
        self.clock, self.asked, self.answer = Clock(), list[tuple[float, str]](), answer
        renewal = CertificateRenewal("pi-01", Tls(ca=ca, certificate=self.file, key=self.file), self.clock.wall)
        self.late = LateRenewal(
            renewal,
            Signer.new(),
            fleet="default",
            addresses=lambda: ADDRESSES,
            background=self,
            clock=self.clock,
            ask=self._ask,
        )

    def _ask(self, broker: Address, _files: Tls, *, request: str, **_: Any) -> str:
        self.asked.append((self.clock.at, broker.host))
        return self.answer(broker, request)

    def start(self, work: Work) -> None:
        told = list[RenewedLate]()
        work(told.append)
        (event,) = told
        self.late.answered(event)

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def wait(self) -> None:
        """Until the next deadline."""
        until = self.late.deadline()
        assert until is not None
        self.clock.at = until
        self.late.woken(until)


def signed(request: str) -> str:
    key = authority.requested_key(request.encode())
    return AUTHORITY.client("pi-01", key, NOW, timedelta(days=90)).pem.decode()


def test_it_is_asked_for_at_each_address_in_turn_until_one_gives_it(tmp_path: Path) -> None:
    def answer(broker: Address, request: str) -> str:
        if broker.host == "old.local":
            raise OSError("Connection refused")
        return signed(request)

    device = Device(tmp_path, answer)
    before = device.file.read_bytes()
    device.late.lost(ENDED)
    assert device.late.ended
    device.wait()
    assert [host for _, host in device.asked] == ["old.local", "new.local"]
    assert device.file.read_bytes() != before
    assert device.late.deadline() is None, "what is left is to connect"
    device.late.connected()
    assert not device.late.ended


def test_a_listener_that_gives_none_is_asked_ever_more_slowly_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def no(_broker: Address, _request: str) -> str:
        raise RemoteError("renewal.refused", "its certificate ended more than 180 days ago")

    device = Device(tmp_path, no)
    device.late.lost(ENDED)
    for _ in range(20):
        device.wait()
    times = sorted({at for at, _ in device.asked})
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[0] < 2 * FIRST
    assert LONGEST / 2 <= gaps[-1] <= LONGEST
    assert caplog.text.count("more than 180 days ago") == len(ADDRESSES)


def test_another_failure_than_that_of_our_certificate_asks_for_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path, lambda _broker, request: signed(request))
    device.late.lost(ConnectionLost("Connection refused"))
    assert device.late.deadline() is None
    device.late.lost(ConnectionLost("the broker ended the connection", certificate="refused"))
    assert device.late.deadline() is not None
    assert not device.late.ended, "its clock may be behind, or it was revoked: it may give up"
    device.late.lost(ConnectionLost("Connection refused"))
    assert device.late.deadline() is None


def test_a_certificate_that_is_not_for_our_key_is_not_taken(tmp_path: Path) -> None:
    foreign = signed(authority.request("pi-01", authority.new_key()).decode())
    device = Device(tmp_path, lambda _broker, _request: foreign)
    before = device.file.read_bytes()
    device.late.lost(ENDED)
    device.wait()
    assert device.file.read_bytes() == before
    assert device.late.deadline() is not None


def test_a_device_with_files_of_its_operators_own_asks_nobody(tmp_path: Path) -> None:
    device = Device(tmp_path, lambda _broker, request: signed(request))
    own = CertificateRenewal("pi-01", Tls(certificate=tmp_path / "a.crt", key=tmp_path / "a.key"), device.clock.wall)
    late = LateRenewal(
        own, Signer.new(), fleet="default", addresses=lambda: ADDRESSES, background=device, clock=device.clock
    )
    late.lost(ENDED)
    assert late.deadline() is None
