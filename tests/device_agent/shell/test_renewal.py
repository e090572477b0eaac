"""A device's certificate is made anew before it ends, and nothing else is taken for it."""

import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from device_agent.shell.renewal import AGAIN, CertificateRenewal
from edgefl.base.errors import WireError
from edgefl.fleet import authority
from edgefl.fleet.authority import Authority
from edgefl.wire.tls import Tls

BORN = datetime(2026, 1, 1, tzinfo=timezone.utc)
LASTS = timedelta(days=90)
AUTHORITY = Authority.new("default", BORN)


class Device:
    """One with a certificate of 90 days, and a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        key = authority.new_key()
        self.file = folder / "tls.pem"
        self.file.write_bytes(authority.key_pem(key) + AUTHORITY.client("pi-01", key.public_key(), BORN, LASTS).pem)
        self.day = 0.0
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(AUTHORITY.pem)
        self.renewal = CertificateRenewal("pi-01", Tls(ca=self.ca, certificate=self.file, key=self.file), self.wall)

    def wall(self) -> float:
        return BORN.timestamp() + self.day * 86400

    def asks(self, day: float) -> str:
        self.day = day
        request = self.renewal.request()
        assert request is not None
        return request


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def signed(request: str, name: str = "pi-01", day: int = 65, lasts: timedelta = LASTS) -> str:
    key = authority.requested_key(request.encode())
    return AUTHORITY.client(name, key, BORN + timedelta(days=day), lasts).pem.decode()


def test_it_is_asked_for_when_a_third_of_its_time_is_left_and_again_after_an_hour(device: Device) -> None:
    assert device.renewal.request() is None
    device.day = 59
    assert device.renewal.request() is None
    device.asks(61)
    assert device.renewal.request() is None, "it has just asked"
    device.asks(61 + (AGAIN + 1) / 86400)


def test_key_and_certificate_are_replaced_as_one_and_for_their_owner_alone(device: Device) -> None:
    before = device.file.read_bytes()
    device.renewal.take(signed(device.asks(65)))
    after = device.file.read_bytes()
    certificate = authority.read_certificate(after)
    assert after.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert authority.belong_together(certificate, after, "pi-01")
    assert not authority.belong_together(certificate, before, "pi-01"), "the key is another one too"
    assert certificate.not_valid_after_utc == BORN + timedelta(days=65) + LASTS
    assert stat.S_IMODE(device.file.stat().st_mode) == 0o600
    device.day = 66
    assert device.renewal.request() is None


def test_what_was_not_asked_for_is_not_taken(device: Device) -> None:
    pem = signed(authority.request("pi-01", authority.new_key()).decode())
    with pytest.raises(WireError, match="not asked for"):
        device.renewal.take(pem)
    device.asks(65)
    for bad, why in (
        (pem, "not for this device's key"),
        ("nonsense", "cannot be read"),
        ("", "cannot be read"),
    ):
        with pytest.raises(WireError, match=why):
            device.renewal.take(bad)


def test_a_certificate_of_another_name_or_a_shorter_one_is_not_taken(device: Device) -> None:
    before, request = device.file.read_bytes(), device.asks(65)
    with pytest.raises(WireError, match="not for this device"):
        device.renewal.take(signed(request, name="pi-02"))
    with pytest.raises(WireError, match="not last longer"):
        device.renewal.take(signed(request, day=1, lasts=timedelta(days=5)))
    assert device.file.read_bytes() == before
    device.renewal.take(signed(request))


def test_files_of_the_operators_own_are_left_alone(tmp_path: Path) -> None:
    own = Tls(certificate=tmp_path / "a.crt", key=tmp_path / "a.key")
    assert CertificateRenewal("pi-01", own, lambda: 0.0).request() is None
    assert CertificateRenewal("pi-01", Tls(), lambda: 0.0).request() is None
