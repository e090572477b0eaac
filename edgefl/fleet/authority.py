"""The fleet's authority: an own CA that says who is who at the broker. P-256 throughout; nothing outside is asked.

A certificate's common name is the user at the broker, and for a device its `agent.id`. Serial numbers are drawn at
random and written down by the code that asks for the certificate (members.py); a revocation list names those that no
longer count.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgefl.base.errors import ConfigError

DAYS = 3650  # of the authority itself
BACKDATED = timedelta(days=1)  # a clock that is a little slow believes a new certificate too
LEEWAY = timedelta(hours=1)  # how far back a revocation list may be dated, see `revocations`
LONGEST = 64  # characters of a name in a certificate; a fleet may use all of them for itself
SECOND = timedelta(seconds=1)
_UNREADABLE = UnsupportedAlgorithm, x509.InvalidVersion  # what parsing raises besides a ValueError
_NO_USAGE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "key_cert_sign": False,
    "crl_sign": False,
    "encipher_only": False,
    "decipher_only": False,
}


class Issued(NamedTuple):
    """A certificate, and what is written down of it."""

    pem: bytes
    serial: int
    expires: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs: its key and its own certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, fleet: str, now: datetime) -> "Authority":
        """A new one, named after its fleet."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"edgefl fleet {fleet}"[:LONGEST])
        begun = _begun(name, name, key.public_key(), key.public_key(), now, DAYS)
        begun = begun.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(**{**_NO_USAGE, "key_cert_sign": True, "crl_sign": True})
        return cls(key, begun.add_extension(usage, critical=True).sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, key: bytes, certificate: bytes) -> "Authority":
        """The one of these two PEM files; ValueError if they are not what they should be."""
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("not a P-256 key")
        own = x509.load_pem_x509_certificate(certificate)
        if own.public_key() != private.public_key():
            raise ValueError("key and certificate do not belong together")
        return cls(private, own)

    @property
    def pem(self) -> bytes:
        """The certificate that every member is given."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """What the certificate is known by: its SHA-256, in hexadecimal digits."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def client(
        self,
        name: str,
        key: ec.EllipticCurvePublicKey,
        now: datetime,
        lasts: timedelta,
        serial: int | None = None,
    ) -> Issued:
        """Issue a certificate for the owner of this key, under this name. Its number is drawn unless given."""
        return self._issue(name, key, now, lasts, ExtendedKeyUsageOID.CLIENT_AUTH, (), serial)

    def server(self, hosts: Sequence[str], key: ec.EllipticCurvePublicKey, now: datetime, lasts: timedelta) -> Issued:
        """A certificate for a server that is reached by these names and addresses."""
        return self._issue(hosts[0], key, now, lasts, ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def revocations(self, revoked: Mapping[int, datetime], now: datetime, before: bytes | None) -> bytes:
        """The list of serial numbers that no longer count, as PEM; `before` is the list that it follows.

        OpenSSL prefers the younger of two lists and compares seconds, but refuses one of the future. So a list begins
        an hour ago, and each is at least a second younger than the one before.
        """
        date, number = now.replace(microsecond=0) - LEEWAY, 1
        if before is not None:
            last = x509.load_pem_x509_crl(before)
            date = max(date, last.last_update_utc + SECOND)
            number = last.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number + 1
        until = self.certificate.not_valid_after_utc  # an expired list would shut every member out
        begun = x509.CertificateRevocationListBuilder(self.certificate.subject, date, until)
        begun = begun.add_extension(x509.CRLNumber(number), critical=False)
        begun = begun.add_extension(_by(self.key.public_key()), critical=False)
        for serial, since in revoked.items():
            entry = x509.RevokedCertificateBuilder(serial, min(since, date))
            begun = begun.add_revoked_certificate(entry.build())
        return begun.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _issue(  # noqa: PLR0917 - what a certificate says
        self,
        name: str,
        key: ec.EllipticCurvePublicKey,
        now: datetime,
        lasts: timedelta,
        purpose: x509.ObjectIdentifier,
        hosts: Sequence[str],
        serial: int | None = None,
    ) -> Issued:
        begun = _begun(_name(name), self.certificate.subject, key, self.key.public_key(), now, 0, serial)
        until = min(now.replace(microsecond=0) + lasts, self.certificate.not_valid_after_utc)
        begun = begun.not_valid_after(until).add_extension(x509.BasicConstraints(False, None), critical=True)
        usage = x509.KeyUsage(**{**_NO_USAGE, "digital_signature": True})
        begun = begun.add_extension(usage, critical=True)
        begun = begun.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            begun = begun.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        certificate = begun.sign(self.key, hashes.SHA256())
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), certificate.serial_number, until)


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key for a certificate."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as it stands in a file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def request(name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    """What a device sends to have its key certified; the key itself stays where it is."""
    begun = x509.CertificateSigningRequestBuilder().subject_name(_name(name))
    return begun.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def requested_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a request; ValueError if its sender lacks the private half. Its name is not looked at."""
    try:
        asked = x509.load_pem_x509_csr(pem)
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("its key is not a P-256 key")
        if not asked.is_signature_valid:
            raise ValueError("it is not signed with its own key")
    except _UNREADABLE as error:
        raise ValueError(f"it cannot be read ({error})") from None
    return key


def read_certificate(pem: bytes) -> x509.Certificate:
    """The certificate of a PEM file; ValueError if it is none, or has a key of an unknown kind."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.public_key()
    except _UNREADABLE as error:
        raise ValueError(f"it cannot be read ({error})") from None
    return certificate


def covers(pem: bytes, hosts: Sequence[str]) -> bool:
    """Return whether a server's certificate is for these names and addresses, and for no others."""
    try:
        names = read_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return set(names) == {_host(host) for host in hosts}


def issued_by(certificate: x509.Certificate, authorities: bytes) -> bool:
    """Whether one of these authorities (PEM) signed the certificate."""
    for authority in x509.load_pem_x509_certificates(authorities):
        with suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(authority)
            return True
    return False


def belong_together(certificate: x509.Certificate, key: bytes, name: str) -> bool:
    """Whether the certificate is for this private key (PEM) and this name."""
    private = serialization.load_pem_private_key(key, None)
    return certificate.public_key() == private.public_key() and certificate.subject == _name(name)


def clock() -> datetime:
    """What time it is, as certificates count it."""
    return datetime.now(timezone.utc)


def check_host(host: str) -> str:
    """A name or address that a certificate can be for, and a URL can have."""
    try:
        ip_address(host)
    except ValueError:
        labels = host.rstrip(".").split(".")
        plain = all(label and label.replace("-", "").isalnum() and label.isascii() for label in labels)
        if not plain or len(host) > 253:
            raise ConfigError(f"--host '{host}' is neither a host name nor an IP address") from None
    return host


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _by(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _begun(  # noqa: PLR0917 - what a certificate says
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    by: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
    serial: int | None = None,
) -> x509.CertificateBuilder:
    now = now.replace(microsecond=0)
    begun = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    begun = begun.serial_number(x509.random_serial_number() if serial is None else serial).not_valid_before(
        now - BACKDATED
    )
    begun = begun.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    begun = begun.add_extension(_by(by), critical=False)
    return begun.not_valid_after(now + timedelta(days=days)) if days else begun
