"""Sealing, as a transform of whole frames: what a device sends is readable for its coordinator alone (wire/sealing.py).

The agent seals outside of the process that trains. The coordinator opens whatever came sealed, also where open answers
will do.
"""

from dataclasses import dataclass

from edgefl.base.errors import WireError
from edgefl.job.transforms.transform import Transform
from edgefl.wire.frames import Unread, Unseal
from edgefl.wire.sealing import SYSTEM, Entropy, sealed


@dataclass(frozen=True, kw_only=True)
class Sealing(Transform):
    """Seal the frame of an answer; each one is opened by itself, before anything is added up."""

    name: str = "wire.seal"
    needs_single: bool = True

    def device(self, frame: bytes | bytearray, key: str, entropy: Entropy = SYSTEM) -> bytes | bytearray:
        """Return the frame, its body readable for the owner of this key alone."""
        return sealed(frame, key, entropy)

    def coordinator(self, unread: Unread, limit: int, unseal: Unseal, *, required: bool) -> memoryview:
        """Return the body of a frame, which has at most `limit` bytes. Refuse an open one if sealing is `required`."""
        if required and not unread.sealed:
            raise WireError("update.unsealed", "an open answer to a task that asked for a sealed one")
        return unread.body(limit, unseal)
