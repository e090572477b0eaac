"""Certificates of a CA of our own, with any dates, and a Mosquitto that shows them."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgefl.processes import Child
from edgefl.protocol.broker import find_mosquitto

NOW = datetime.now(timezone.utc)
DAY = timedelta(days=1)


class Authority:
    """A CA; `issue` writes a certificate and its key into the folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        made = self._built(self.name, self.key, NOW - 900 * DAY, NOW + 900 * DAY).add_extension(constraint, True)
        self.ca = folder / f"{name}.crt"
        self.ca.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, since: datetime = NOW - DAY, until: datetime = NOW + 90 * DAY) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._built(subject, key, since, until).add_extension(place, False)
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        paths[0].write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(key.private_bytes(*pem))
        return paths

    def _built(self, subject, key, since, until):
        built = x509.CertificateBuilder(self.name, subject, key.public_key(), x509.random_serial_number())
        return built.not_valid_before(since).not_valid_after(until)


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[int]:
    """The port of a Mosquitto with these lines in its configuration."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    stay = ["user root"] if os.geteuid() == 0 else []  # or it becomes one who cannot read a test's folder
    (folder / "mosquitto.conf").write_text("\n".join([f"listener {port} 127.0.0.1", *lines, *stay, ""]))
    child = Child([find_mosquitto() or "mosquitto", "-c", str(folder / "mosquitto.conf")], folder / "mosquitto.log")
    try:
        while not child.gone.wait(0.01):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
        assert not child.gone.is_set(), child.said()
        yield port
    finally:
        child.stop()
