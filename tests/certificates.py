"""A certificate authority for tests: certificates of any dates, for any name, as files; a Mosquitto that shows them."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgefl.system.processes import Child
from edgefl.wire.broker import find_mosquitto
from edgefl.wire.tls import Tls

NOW = datetime.now(timezone.utc).replace(microsecond=0)
DAY = timedelta(days=1)
Dates = tuple[datetime, datetime]
VALID, EXPIRED, NOT_YET = (NOW - DAY, NOW + DAY), (NOW - 9 * DAY, NOW - DAY), (NOW + DAY, NOW + 9 * DAY)
LASTING = (NOW - DAY, NOW + 90 * DAY)


def shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True)
class Authority:
    """One CA; what it issues stands beside it in its folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    path: Path

    @classmethod
    def new(cls, folder: Path, name: str = "edgefl CA", dates: Dates = VALID) -> "Authority":
        folder.mkdir(parents=True, exist_ok=True)
        issuer = cls(folder, name, ec.generate_private_key(ec.SECP256R1()), folder / "ca.crt")
        usage = dict.fromkeys(
            (
                *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("crl_sign", "encipher_only", "decipher_only"),
            ),
            False,
        )
        mine = issuer._begun(name, dates, issuer.key).add_extension(x509.BasicConstraints(True, None), critical=True)
        mine = mine.add_extension(x509.KeyUsage(**usage, key_cert_sign=True), critical=True)
        issuer.path.write_bytes(issuer._signed(mine))
        return issuer

    def issue(self, name: str, dates: Dates = VALID, names: tuple[str, ...] = ("127.0.0.1",)) -> Tls:
        """A certificate and its key; the names are what a client may call its holder."""
        key = ec.generate_private_key(ec.SECP256R1())
        known = [x509.IPAddress(ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
        asked = self._begun(name, dates, key).add_extension(x509.SubjectAlternativeName(known), critical=False)
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(self._signed(asked))
        secret.touch(mode=0o600)
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        return Tls(ca=self.path, certificate=certificate, key=secret)

    def _begun(self, name: str, dates: Dates, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        mine, theirs = self.key.public_key(), key.public_key()
        begun = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(_named(self.name)).public_key(theirs)
        begun = begun.serial_number(x509.random_serial_number()).not_valid_before(dates[0]).not_valid_after(dates[1])
        begun = begun.add_extension(x509.SubjectKeyIdentifier.from_public_key(theirs), critical=False)
        return begun.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(mine), critical=False)

    def _signed(self, asked: x509.CertificateBuilder) -> bytes:
        return asked.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[int]:
    """The port of a Mosquitto with these lines in its configuration."""
    program = find_mosquitto()
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    stay = ["user root"] if os.geteuid() == 0 else []  # or it becomes one who cannot read a test's folder
    (folder / "mosquitto.conf").write_text("\n".join([f"listener {port} 127.0.0.1", *lines, *stay, ""]))
    child = Child([program, "-c", str(folder / "mosquitto.conf")], folder / "mosquitto.log")
    try:
        while not child.gone.wait(0.01):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
        assert not child.gone.is_set(), child.last_words()
        yield port
    finally:
        child.stop()
