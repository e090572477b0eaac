"""Requests for a certificate that nobody should sign, as PEM, by what is wrong with them."""

import base64
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID

from edgefl.fleet.authority import Authority, clock, new_key, request

KEY = new_key()
GOOD = request("pi-02", KEY).decode()


def pem(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


def der() -> bytes:
    return x509.load_pem_x509_csr(GOOD.encode()).public_bytes(serialization.Encoding.DER)


def with_key(key: CertificateIssuerPrivateKeyTypes) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pi-02")])
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, algorithm)
    return asked.public_bytes(serialization.Encoding.PEM).decode()


def of_version(number: int) -> str:
    data = bytearray(der())
    at = data.index(b"\x02\x01\x00")  # the first number in it
    data[at + 2] = number
    return pem(bytes(data))


def changed(where: int) -> str:
    data = bytearray(der())
    data[where] ^= 1
    return pem(bytes(data))


MALFORMED = {
    "no request": "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    "not base64": "-----BEGIN CERTIFICATE REQUEST-----\n\x00\n-----END CERTIFICATE REQUEST-----\n",
    "half of one": GOOD[: len(GOOD) // 2],
    "a version that does not exist": of_version(7),
    "a signature that was changed": changed(-1),
    "another name than was signed": pem(der().replace(b"pi-02", b"pi-01")),
    "a key of RSA": with_key(rsa.generate_private_key(65537, 2048)),
    "a key of another curve": with_key(ec.generate_private_key(ec.SECP384R1())),
    "a key of Ed25519": with_key(ed25519.Ed25519PrivateKey.generate()),
    "a certificate": Authority.new("x", clock() - timedelta(days=1)).pem.decode(),
    "a kind of key that does not exist": pem(
        der().replace(b"\x2a\x86\x48\xce\x3d\x02\x01", b"\x2a\x86\x48\xce\x3d\x02\x41")
    ),
}
