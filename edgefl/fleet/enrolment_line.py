"""One connection to an enrolment listener: messages of four bytes of length and that number of bytes, all bounded."""

import hmac
import socket
import ssl
import struct
import time

from cryptography.hazmat.primitives import hashes

from edgefl.base.errors import ConfigError
from edgefl.fleet.authority import read_certificate

LIMIT = 64 << 10  # bytes of a message
PATIENCE = 5.0  # seconds for a whole connection
_LENGTH = struct.Struct(">I")


def send(line: ssl.SSLSocket, data: bytes) -> None:
    """One message."""
    line.sendall(_LENGTH.pack(len(data)) + data)


def receive(line: ssl.SSLSocket, until: float) -> bytes:
    """Return the next message, whole and in time; EOFError if there is none."""
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size, until))
    if length > LIMIT:
        raise ValueError(f"a message of {length} bytes is more than {LIMIT}")
    return _exactly(line, length, until)


def connected(host: str, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect as a client."""
    plain = socket.create_connection((host, port), PATIENCE)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def trusting(ca: bytes) -> ssl.SSLContext:
    """Return a client's context that believes this authority (PEM) alone."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def authority(host: str, port: int, fingerprint: str) -> bytes:
    """Return the certificate (PEM) of the fleet's authority with this fingerprint; any other server is not believed."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE  # what comes is looked at, not trusted, and nothing is said
    with connected(host, port, unverified) as line:
        pem = receive(line, time.monotonic() + PATIENCE)
    try:
        seen = read_certificate(pem).fingerprint(hashes.SHA256()).hex()
    except ValueError:
        seen = "none"
    if not hmac.compare_digest(seen, fingerprint):
        raise ConfigError(
            f"{host}:{port} has another authority ({seen[:16]}...) than this token ({fingerprint[:16]}"
            "...): another machine is between, or the token is another fleet's"
        )
    return pem


def _exactly(line: ssl.SSLSocket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        line.settimeout(left)
        part = line.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
