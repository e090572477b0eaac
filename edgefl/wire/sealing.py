"""For the coordinator's eyes alone: the body of an answer, so that a broker carries what it cannot read.

    X25519 key made for this answer 32 | ChaCha20-Poly1305 of the body | tag 16

The two X25519 keys give a secret, HKDF-SHA256 makes it a key that serves once. Everything before the body in its frame
(job, run, round, device, model, what is in it) is authenticated with it: a sealed body opens in its own frame only. The
coordinator's X25519 key follows from its Ed25519 one, so that it is as durable and told inside what that one signs.

Frames are sealed before they are hashed, signed and cut into chunks, once, and kept as they are until their receipt.
`cryptography` is imported when the first key is used.
"""

import os
from collections.abc import Callable
from typing import TypeAlias

from edgefl.base.errors import WireError
from edgefl.wire import frames
from edgefl.wire.signing import Signer, base64_bytes, base64_text

KIND = "x25519:"
KEY, TAG = 32, 16  # bytes: frames.SEAL together
_NONCE = bytes(12)  # the key serves once

Entropy: TypeAlias = Callable[[int], bytes]
SYSTEM: Entropy = os.urandom


def sealed(data: bytes | bytearray, to: str, entropy: Entropy = SYSTEM) -> bytes | bytearray:
    """The frame, its body readable for the owner of this key alone."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    head, body = frames.for_sealing(data)
    whose = base64_bytes(to.removeprefix(KIND), KEY)
    ours = X25519PrivateKey.from_private_bytes(entropy(KEY))
    mine = ours.public_key().public_bytes_raw()
    try:
        secret = ours.exchange(X25519PublicKey.from_public_bytes(whose))
    except ValueError:  # a point with which every secret is the same
        raise WireError("seal.key", f"{to} is no key that anything can be sealed for") from None
    cipher = ChaCha20Poly1305(_once(secret, mine, whose))
    if not hasattr(cipher, "encrypt_into"):  # not in every version that we allow
        return b"".join([head, mine, cipher.encrypt(_NONCE, body, head)])
    begin = len(head) + KEY
    frame = bytearray(begin + len(body) + TAG)  # in its place at once: fresh memory costs more than the cipher
    frame[:begin] = head + mine
    cipher.encrypt_into(_NONCE, body, head, memoryview(frame)[begin:])
    return frame


class Opener:
    """Opens what was sealed for one coordinator; `key` is what devices are told."""

    def __init__(self, signer: Signer) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

        self._private = X25519PrivateKey.from_private_bytes(_derived(signer.secret(), b"", b"edgefl sealing key 1"))
        self._public = self._private.public_key().public_bytes_raw()
        self.key = KIND + base64_text(self._public)

    def __call__(self, head: memoryview, data: memoryview) -> bytes:
        """The body behind these bytes, if it was sealed for us and with this very head."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

        theirs = bytes(data[:KEY])
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            return ChaCha20Poly1305(_once(secret, theirs, self._public)).decrypt(_NONCE, data[KEY:], head)
        except (InvalidTag, ValueError):
            raise WireError("update.seal", "its seal does not open: sealed for another key, or changed") from None


def _once(secret: bytes, ephemeral: bytes, recipient: bytes) -> bytes:
    return _derived(secret, ephemeral + recipient, b"edgefl sealed answer 1")


def _derived(secret: bytes, salt: bytes, what_for: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), KEY, salt, what_for).derive(secret)
