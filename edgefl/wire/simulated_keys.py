"""Keys of machines that do not exist: they hold in this process only, follow from a seed, and cost next to nothing.

A simulated fleet signs and checks every message as a real one does, thousands of times in a second. Such a key cannot
be made outside of this process, and a process that simulates nothing has none.
"""

from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from edgefl.wire import signing
from edgefl.wire.sealing import Entropy
from edgefl.wire.signing import KEY_BYTES, SIGNATURE_BYTES, Signer


@dataclass(frozen=True, slots=True)
class SimulatedKey:
    """Stands for a private key and for its public half."""

    secret: bytes

    def public_key(self) -> "SimulatedKey":
        return self

    def public_bytes_raw(self) -> bytes:
        return blake2b(self.secret, digest_size=KEY_BYTES).digest()

    def private_bytes_raw(self) -> bytes:
        return self.secret

    def sign(self, statement: bytes) -> bytes:
        return blake2b(statement, key=self.secret, digest_size=SIGNATURE_BYTES).digest()


def signer(*names: str | int) -> Signer:
    """The signer of this name: the same name has the same key, always."""
    key = SimulatedKey(blake2b(repr(names).encode(), digest_size=KEY_BYTES).digest())
    signing.SIMULATED[key.public_bytes_raw()] = key
    return Signer(key)


def entropy(*names: str | int) -> Entropy:
    """Return bytes that follow from the name alone: no secret is needed here."""
    draws = count()
    return lambda size: blake2b(repr((*names, next(draws))).encode(), digest_size=size).digest()
