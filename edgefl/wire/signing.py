"""Who made this model: the coordinator signs every manifest with its Ed25519 key, and a device believes no other.

    {"protocol":1,"job":"digits", ... ,"key":"ed25519:...","signature":"..."}

Key and signature are the last two members of the manifest's JSON. The signature covers the exact bytes of the object
without them, after a fixed prefix. So nothing is parsed before the signature is checked, and there is only one way to
write a manifest. A manifest names the hash of its frame, so the signature covers model, layout, algorithm and graphs.

The same keys sign messages, see `signed.py`. `cryptography` is imported when the first key is used.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias

from pydantic import AfterValidator

from edgefl.base.errors import WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREFIX = b"edgefl manifest 1\0"  # what this key signs can never be taken for something else
KIND = "ed25519:"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
KNOWN = 4096  # keys that are kept as they are used: the same few sign everything

_TAIL = re.compile(rb'(.*),"key":"([^"]{1,100})","signature":"([^"]{1,200})"\}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said, and who is said to have said it; nothing of it is proven."""

    statement: bytes
    key: str
    signature: bytes

    def prove(self) -> None:
        """Nothing, if the statement was signed with this key and not changed since."""
        if not verified(key_bytes(self.key), self.signature, PREFIX + self.statement):
            raise WireError("model.signature", f"the manifest is not what {self.key} signed")


class PublicKey(Protocol):
    """The public half of a key."""

    def public_bytes_raw(self) -> bytes: ...


class PrivateKey(Protocol):
    """An Ed25519 key, or a simulated one (simulated_keys.py)."""

    def public_key(self) -> PublicKey: ...

    def sign(self, data: bytes, /) -> bytes: ...

    def private_bytes_raw(self) -> bytes: ...


SIMULATED: dict[bytes, PrivateKey] = {}  # by their public halves: those of machines simulated in this process


class Signer:
    """Signs for one key."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self.key = key_text(key.public_key().public_bytes_raw())

    @classmethod
    def new(cls) -> "Signer":
        """One with a new key, which is nowhere on disk."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - see above

        return cls(Ed25519PrivateKey.generate())

    def sign(self, statement: bytes) -> bytes:
        """The JSON object `statement`, signed."""
        signature = base64_text(self._key.sign(PREFIX + statement))
        return statement[:-1] + f',"key":"{self.key}","signature":"{signature}"}}'.encode()

    def secret(self) -> bytes:
        """What other keys of the same owner are derived from."""
        return self._key.private_bytes_raw()

    def signature(self, statement: bytes) -> bytes:
        """The signature of a statement that begins with a prefix of its own."""
        return self._key.sign(statement)


def verified(key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the statement was signed with this key."""
    if (simulated := SIMULATED.get(key)) is not None:
        return signature == simulated.sign(statement)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see above

    try:
        _public_key(key).verify(signature, statement)
    except (InvalidSignature, ValueError):  # ValueError: 32 bytes that are no point of the curve
        return False
    return True


@lru_cache(KNOWN)
def _public_key(raw: bytes) -> "Ed25519PublicKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - see above

    return Ed25519PublicKey.from_public_bytes(raw)


def claim(payload: bytes) -> Claim:
    """The claim that a signed manifest makes; what bears no signature is refused."""
    match = _TAIL.fullmatch(payload)
    if match is None:
        raise WireError("model.unsigned", "the manifest bears no signature; is the coordinator older than this agent?")
    statement, key, signature = match[1] + b"}", match[2].decode("latin-1"), match[3].decode("latin-1")
    try:
        key_bytes(key)
        return Claim(statement, key, base64_bytes(signature, SIGNATURE_BYTES))
    except ValueError as error:
        raise WireError("model.unsigned", f"the manifest's signature cannot be read: {error}") from None


@lru_cache(KNOWN)
def key_text(raw: bytes) -> str:
    """How a public key is written."""
    return KIND + base64_text(raw)


@lru_cache(KNOWN)
def key_bytes(key: str) -> bytes:
    """The public key behind its text; ValueError if it is none."""
    if not key.startswith(KIND):
        raise ValueError(f"a key begins with '{KIND}'; `edgefl coordinator key run.toml` prints it")
    return base64_bytes(key.removeprefix(KIND), KEY_BYTES)


def checked_key(key: str) -> str:
    """Return the text of a public key; ValueError if it is none."""
    key_bytes(key)
    return key


KeyText: TypeAlias = Annotated[str, AfterValidator(checked_key)]  # in files: a public key


def base64_text(raw: bytes) -> str:
    """base64url, without padding."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def base64_bytes(text: str, size: int) -> bytes:
    """The bytes behind their one and only text."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    if len(raw) != size or base64_text(raw) != text:
        raise ValueError(f"'{text}' is not {size} bytes in base64url")
    return raw
