"""What is wrong with a certificate, in words an operator can act on: which one, its dates, what the clock here says.

TLS itself says no more than "certificate verify failed". So after a failed handshake the broker's certificate is
fetched once more, without trusting it and without saying anything, and is read together with the files on this side.
A device without a battery wakes up in a wrong year: dates are never judged without naming the clock.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgefl.wire.address import Address
from edgefl.wire.tls import Tls

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name

EXPIRED, NOT_YET, WRONG_NAME, WRONG_IP = 10, 9, 62, 64  # the codes of OpenSSL's X509_verify_cert
UNKNOWN_CA = {2, 18, 19, 20, 21}
PATIENCE = 3.0  # seconds for the broker to show its certificate
CLOCK = "set this clock right (timedatectl)"


@dataclass(frozen=True, slots=True)
class CertificateTrouble:
    """What is wrong, and what to do about it."""

    why: str
    remedy: str
    passing: bool = False  # the clock may be set right, and a certificate be renewed in its place
    ours: Literal["", "ended", "refused"] = ""  # whether it is our own certificate that is not accepted


def explain(failed: OSError, address: Address, files: Tls) -> CertificateTrouble | None:
    """Why the handshake with the broker failed, if it was for a certificate."""
    if not isinstance(failed, ssl.SSLError):
        return None
    if not isinstance(failed, ssl.SSLCertVerificationError):
        return refused(files)
    theirs = _shown(address)
    if failed.verify_code in (EXPIRED, NOT_YET):
        for what, certificate in _trusted(theirs, files):
            if explanation := _dates(what, certificate):
                return explanation
    who = f"the broker's certificate ({_name(theirs.subject)})" if theirs else "the broker's certificate"
    if failed.verify_code in (WRONG_NAME, WRONG_IP):
        names = " and ".join(_names(theirs)) if theirs else ""
        return CertificateTrouble(
            f"{who} is for {names or 'another name'}, not for {address.host}",
            "write the name it is for in the broker's address, or make it anew with this one (subjectAltName)",
        )
    if failed.verify_code in UNKNOWN_CA:
        issuer = f"was issued by {_name(theirs.issuer)}, which" if theirs else "is of a CA that"
        return CertificateTrouble(
            f"{who} {issuer} {files.ca or 'this system'} does not vouch for", "give the CA that issued it as tls.ca"
        )
    remedy = "make it anew as docs/guides/members.md says"
    return CertificateTrouble(f"{who} is not accepted here ({failed.verify_message})", remedy)


def refused(files: Tls) -> CertificateTrouble | None:
    """What may be wrong with our own certificate, when the broker ended the handshake or said nothing after it."""
    if files.certificate is None:
        return None
    for ours in _read(files.certificate):
        issuer = f"{_span(ours)}, issued by {_name(ours.issuer)}"
        if dated := _dates(f"our own certificate {files.certificate}", ours):
            return replace(dated, ours="ended" if ours.not_valid_after_utc < datetime.now(timezone.utc) else "")
        return CertificateTrouble(
            f"the broker ended the connection before it answered; it may not accept our own certificate"
            f" {files.certificate} ({_name(ours.subject)}, {issuer})",
            "use one of the CA that the broker trusts, or a new kit if this device was revoked; its log says more",
            ours="refused",
        )
    return None


def _trusted(theirs: "Certificate | None", files: Tls) -> "Iterator[tuple[str, Certificate]]":
    """The certificates that the handshake had to believe, by what an operator calls them."""
    if theirs is not None:
        yield f"the broker's certificate ({_name(theirs.subject)})", theirs
    for authority in _read(files.ca):
        yield f"the CA's certificate {files.ca} ({_name(authority.subject)})", authority


def _dates(what: str, certificate: "Certificate") -> CertificateTrouble | None:
    now = datetime.now(timezone.utc)
    if now > certificate.not_valid_after_utc:
        wrong, remedy = "has expired", f"renew it, or {CLOCK}"
    elif now < certificate.not_valid_before_utc:
        wrong, remedy = "is not yet valid", f"{CLOCK}, or make it anew"
    else:
        return None
    why = f"{what} {wrong}: it is {_span(certificate)}, and the clock here says {_day(now)}"
    return CertificateTrouble(why, remedy, passing=True)


def _span(certificate: "Certificate") -> str:
    return f"valid from {_day(certificate.not_valid_before_utc)} until {_day(certificate.not_valid_after_utc)}"


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _name(name: "Name") -> str:
    return name.rfc4514_string() or "without a name"


def _names(certificate: "Certificate") -> list[str]:
    from cryptography import x509  # noqa: PLC0415 - only when something is wrong

    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *alternatives.get_values_for_type(x509.DNSName),
        *map(str, alternatives.get_values_for_type(x509.IPAddress)),
    ]


def _read(path: Path | None) -> "list[Certificate]":
    from cryptography import x509  # noqa: PLC0415 - only when something is wrong

    with suppress(OSError, ValueError):
        return x509.load_pem_x509_certificates(path.read_bytes()) if path else []
    return []


def _shown(address: Address) -> "Certificate | None":
    """Return the certificate that the broker shows to every client."""
    from cryptography import x509  # noqa: PLC0415 - only when something is wrong

    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE  # it is looked at, not trusted: nothing is said through this connection
    with suppress(OSError, ValueError):
        plain = socket.create_connection((address.host, address.port), PATIENCE)
        with plain, unverified.wrap_socket(plain, server_hostname=address.host) as wrapped:
            if raw := wrapped.getpeercert(binary_form=True):
                return x509.load_der_x509_certificate(raw)
    return None
