"""The dates of a certificate, read without the library that reads certificates, are those that it reads."""

from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509

from edgefl.fleet import authority
from edgefl.fleet.authority import Authority
from edgefl.wire import certificate_dates

NOW = datetime(2026, 11, 18, 10, 11, 12, tzinfo=timezone.utc)


def issued(lasts: timedelta, now: datetime = NOW) -> bytes:
    key = authority.new_key()
    return Authority.new("fleet", now).client("pi-01", key.public_key(), now, lasts).pem


@pytest.mark.parametrize("days", [1, 90, 3000, 9000])  # the last ends behind 2049, where years have four digits
def test_the_dates_are_those_that_the_library_reads(days: int) -> None:
    pem = issued(timedelta(days=days))
    certificate = x509.load_pem_x509_certificate(pem)
    begin, end = certificate_dates.read(pem)
    assert begin == certificate.not_valid_before_utc.timestamp()
    assert end == certificate.not_valid_after_utc.timestamp()


def test_a_year_of_the_last_century_stays_there() -> None:
    pem = issued(timedelta(days=1), datetime(1999, 12, 31, tzinfo=timezone.utc))
    assert certificate_dates.read(pem).begin == x509.load_pem_x509_certificate(pem).not_valid_before_utc.timestamp()


def test_a_key_in_front_of_the_certificate_is_passed_over() -> None:
    pem = issued(timedelta(days=90))
    assert certificate_dates.read(authority.key_pem(authority.new_key()) + pem) == certificate_dates.read(pem)


@pytest.mark.parametrize("broken", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_certificate_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        certificate_dates.read(broken)


def test_a_certificate_that_was_cut_off_is_refused() -> None:
    begin, *lines, end = issued(timedelta(days=90)).splitlines()
    for kept in range(1, len(lines)):
        with pytest.raises(ValueError, match="certificate"):
            certificate_dates.read(b"\n".join([begin, *lines[:kept], end]))
