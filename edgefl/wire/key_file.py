"""A private key on disk: made at the first start, whole or not at all, and readable by its owner alone.

It is PEM (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it.
"""

import logging
import re
from base64 import b64decode
from errno import EDQUOT, ENOSPC
from pathlib import Path

from edgefl.base.errors import ConfigError, StoreError
from edgefl.system.store import create_atomically
from edgefl.wire.signing import Signer

log = logging.getLogger(__name__)

# As `new_pem` and openssl write it (RFC 8410): in front of the 32 bytes of the key there is always the same.
_BEFORE = bytes.fromhex("302e020100300506032b657004220420")
_USUAL = re.compile(
    rb"-----BEGIN PRIVATE KEY-----\n(MC4CAQAwBQYDK2VwBCIEI[A-P][A-Za-z0-9+/]{42})\n-----END PRIVATE KEY-----\n?"
)


def opened(file: Path, whose: str, *, elsewhere: str, lost: str) -> Signer:
    """The key of this file, which is made if there is none.

    `elsewhere` says how to choose another file, `lost` what else to do where the key is gone for good.
    """
    try:
        if not file.exists() and create_atomically(file, new_pem()):  # of two at the same time, the first one's stays
            log.info("made %s key path=%s", whose, file)
        mode, data = file.stat().st_mode & 0o777, file.read_bytes()
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):  # no mistake: there may be room for the next start
            raise StoreError(f"{whose} key {file} cannot be made ({error.strerror}); free some space") from None
        raise ConfigError(
            f"{whose} key {file} cannot be read or made ({error.strerror}): {elsewhere}, or correct its owner"
        ) from None
    return checked(data, mode, str(file), whose, lost=lost)


def checked(data: bytes, mode: int, where: str, whose: str, *, lost: str) -> Signer:
    """Return the key in a file of this content and mode, if only its owner can read it and it is a key."""
    if mode & 0o077:
        raise ConfigError(f"{whose} key {where} can be read by others (mode {mode:o}): chmod 600 {where}")
    if (signer := read(data)) is None:
        raise ConfigError(
            f"{whose} key {where} is not an Ed25519 key in PEM without a password: restore it, or delete it and {lost}"
        )
    return signer


def read(data: bytes) -> Signer | None:
    """The key in this PEM; None if it is none that we can use."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - see signing.py

    if match := _USUAL.fullmatch(data):
        return Signer(Ed25519PrivateKey.from_private_bytes(b64decode(match[1])[len(_BEFORE) :]))
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - all kinds of keys: a megabyte
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it wants a password
        return None
    return Signer(key) if isinstance(key, Ed25519PrivateKey) else None


def new_pem() -> bytes:
    """A new key."""
    from cryptography.hazmat.primitives import serialization as ways  # noqa: PLC0415 - see edgefl.wire.signing
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    key = Ed25519PrivateKey.generate()
    return key.private_bytes(ways.Encoding.PEM, ways.PrivateFormat.PKCS8, ways.NoEncryption())
