"""A certificate that works today and may not tomorrow: the doctor reads its dates before a device is refused."""

from datetime import datetime, timezone
from pathlib import Path

from edgefl.ops.doctor.finding import Finding, ok, warning, wrong

SOON = 14  # days: a certificate that ends earlier should be renewed now


def own(path: Path, key: str, now: datetime) -> Finding:
    """The certificate we show, named by `key`."""
    try:
        pem = path.expanduser().read_bytes()
    except OSError as error:
        return wrong("certificate", f"{key} {path} cannot be read ({error.strerror})", f"correct {key}, or its owner")
    return dated("certificate", str(path), pem, now)


def dated(what: str, whose: str, pem: bytes, now: datetime) -> Finding:
    """What the dates of a certificate say at this moment."""
    from cryptography import x509  # noqa: PLC0415 - only where there is TLS

    try:
        read = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return wrong(what, f"{whose} is not a certificate in PEM", "give another file")
    since, until = read.not_valid_before_utc, read.not_valid_after_utc
    valid = f"valid from {since:%Y-%m-%d} until {until:%Y-%m-%d}"
    clock = f"the clock here says {now:%Y-%m-%d %H:%M} UTC"
    if now < since:
        return wrong(what, f"{whose} is not yet valid: {valid}, {clock}", "correct the clock, or wait")
    if now > until:
        return wrong(what, f"{whose} has expired: {valid}, {clock}", "renew it, or correct the clock")
    if (until - now).days < SOON:
        return warning(what, f"{whose} ends soon: {valid}", "renew it")
    return ok(what, f"{whose}, {valid}")


def today() -> datetime:
    return datetime.now(timezone.utc)
