"""A file that only the owner of a key can read, written and read piece by piece: large ones need no memory.

    magic 24 | X25519 key of the reader 32 | X25519 key made for this file 32 | pieces

The two X25519 keys give a secret; HKDF-SHA256 makes it a key that serves for this file alone. Each piece is a mebibyte,
encrypted with ChaCha20-Poly1305; its nonce is its number, and whether it is the last one. So a piece that is changed,
moved or missing is noticed, and so is an end that was cut off.
"""

from pathlib import Path
from typing import Any, BinaryIO

from edgefl.base.errors import ConfigError, StoreError
from edgefl.system.store import create_atomically
from edgefl.wire.signing import base64_bytes, base64_text

MAGIC = b"edgefl sealed back-up 1\n"
KIND = "x25519:"
KEY, TAG = 32, 16  # bytes
PIECE = 1 << 20  # bytes of a piece before it is encrypted
LIMIT = 64 << 10  # bytes of a file with a key


class SealedWriter:
    """What is written here is encrypted for the owner of a key; `close` writes the last piece."""

    def __init__(self, file: BinaryIO, reader: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - see signing.py

        once = X25519PrivateKey.generate()
        public = once.public_key().public_bytes_raw()
        self._file, self._pieces = file, _Pieces(_exchanged(once, reader), public, reader)
        self._rest = bytearray()
        file.write(MAGIC + reader + public)

    def write(self, data: bytes) -> int:
        """Take these bytes; they are in the file when the piece that they belong to is full."""
        self._rest += data
        while len(self._rest) > PIECE:  # the last piece is never empty, unless everything is
            self._file.write(self._pieces.sealed(bytes(self._rest[:PIECE]), last=False))
            del self._rest[:PIECE]
        return len(data)

    def close(self) -> None:
        """Write the last piece."""
        self._file.write(self._pieces.sealed(bytes(self._rest), last=True))


class SealedReader:
    """Reads what was sealed; a piece that is not as it was written is a StoreError."""

    def __init__(self, file: BinaryIO, key: Any, origin: str) -> None:  # Any: `cryptography` is imported when needed
        self._file, self.origin = file, origin
        head = file.read(len(MAGIC) + 2 * KEY)
        reader, public = head[len(MAGIC) : -KEY], head[-KEY:]
        if len(head) < len(MAGIC) + 2 * KEY:
            raise StoreError(f"{origin}: it ends in its first line; take another copy")
        ours = key.public_key().public_bytes_raw()
        if reader != ours:
            raise ConfigError(
                f"{origin}: sealed for {_text(reader)}, and this key is {_text(ours)}; name the other key"
            )
        self._pieces = _Pieces(_exchanged(key, public), public, reader)
        self._next, self._rest = file.read(PIECE + TAG), b""
        self._over = False

    def read(self, size: int = PIECE, /) -> bytes:
        """Return the next bytes, at most `size` of them; none at the end."""
        while len(self._rest) < size and not self._over:
            piece, self._next = self._next, self._file.read(PIECE + TAG)
            self._over = not self._next
            self._rest += self._pieces.opened(piece, self._over, self.origin)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


class _Pieces:
    """The cipher of one file: pieces in their order."""

    def __init__(self, secret: bytes, public: bytes, reader: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), KEY, public + reader, MAGIC).derive(secret))
        self._number = 0

    def sealed(self, data: bytes, *, last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(last), data, None)

    def opened(self, data: bytes, last: bool, origin: str) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            return self._cipher.decrypt(self._nonce(last), data, None)
        except (InvalidTag, ValueError):
            raise StoreError(f"{origin}: its end is missing, or it was changed; take another copy") from None

    def _nonce(self, last: bool) -> bytes:
        self._number += 1
        return self._number.to_bytes(11, "big") + bytes([last])


def is_sealed(file: BinaryIO) -> bool:
    """Return whether a file that can be sought was sealed; it stands at its beginning afterwards."""
    file.seek(0)
    start = file.read(len(MAGIC))
    file.seek(0)
    return start == MAGIC


def make_key(path: Path) -> Path:
    """Make a pair of keys: the secret one in this file, the public one beside it; return where that is."""
    from cryptography.hazmat.primitives import serialization as ways  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

    key, public = X25519PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    pem = key.private_bytes(ways.Encoding.PEM, ways.PrivateFormat.PKCS8, ways.NoEncryption())
    try:
        for file, data in ((path, pem), (public, f"{_text(key.public_key().public_bytes_raw())}\n".encode())):
            if not create_atomically(file, data):
                raise ConfigError(f"{file}: is there already; name another file for the new key")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from None
    return public


def read_public(path: Path) -> bytes:
    """The key in a file that `edgefl backup key` has made, the public one."""
    text = _read(path).strip().decode("ascii", "replace")
    try:
        if text.startswith(KIND):
            return base64_bytes(text.removeprefix(KIND), KEY)
    except ValueError:
        pass
    raise ConfigError(f"{path}: no public key of a back-up, which looks like {KIND}...; `edgefl backup key` makes one")


def read_secret(path: Path) -> Any:  # Any: `cryptography` is imported when needed
    """The key in a file that `edgefl backup key` has made, the secret one."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, X25519PrivateKey):
        raise ConfigError(f"{path}: no secret key of a back-up; name the file without .pub")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None


def _exchanged(private: Any, public: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415

    try:
        secret: bytes = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point with which every secret is the same
        raise ConfigError(f"{_text(public)} is no key that anything can be sealed for") from None
    return secret


def _text(public: bytes) -> str:
    return KIND + base64_text(public)
