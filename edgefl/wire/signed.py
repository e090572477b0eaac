"""Who said this, where, and when: the envelope around everything that a coordinator and a device say to each other.

    magic 2 | version 1 | length of the run's name 1 | key 32 | counter 8 | signature 64 | the run's name | what is said

One envelope goes around one message at the broker: a chunk of a frame, or the JSON of a presence or a state. Signed
are its kind (`down`, `round`, `state`, `up`, `presence`), fleet, job, run and device, the counter, and the hash of
what is said. For a frame in many chunks it is the hash of the frame, which each chunk names. One signature and one
counter serve all chunks, and a changed chunk is noticed when the frame is whole. So a message is valid in one place
only, and nothing in it is parsed before its signature is checked. A sender's counter grows with each message, across
its restarts too. A receiver that keeps the last counter recognises an old message.

The envelope is no part of the frame: what counts as traffic is the same in every driver.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Literal, TypeAlias

import msgpack

from edgefl.base.errors import WireError
from edgefl.wire import chunks, signing
from edgefl.wire.signing import Signer

MAGIC = b"ES"
VERSION = 1
PREFIX = b"edgefl message 1\0"  # what these keys sign can never be taken for something else
LIFE = 32  # bits of the counter that one life of a sender has for its messages; above them is the life's own number
LATEST = 2**32 - 2**20  # seconds since 1970: a clock that is set beyond leaves room for a million lives
ALL = "*"  # the device, where all are meant

Kind: TypeAlias = Literal["down", "round", "state", "up", "presence"]

_HEAD = struct.Struct("<2sBB32sQ64s")


class Unproven(WireError):  # noqa: N818 - what it is, as Interrupted
    """The sender is not proven: the message is counted and dropped, and the device that it names is not blamed."""


@dataclass(frozen=True, slots=True)
class SigningContext:
    """Where something is said."""

    kind: Kind
    fleet: str
    job: str = ""  # a presence is for all jobs
    run_id: str = ""
    device: str = ALL


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is said, and who is said to have said it; nothing of it is proven."""

    key: str
    counter: int
    run_id: str
    payload: bytes | memoryview
    signature: bytes

    def prove(self, place: SigningContext) -> None:
        """Nothing, if this was signed with this key for this place, and not changed since."""
        raw = signing.key_bytes(self.key)
        if place.run_id != self.run_id or not signing.verified(raw, self.signature, _statement(place, raw, self)):
            raise Unproven("message.signature", f"a message of kind '{place.kind}' is not what {self.key} signed")


def life_number(wall: float, before: int = 0) -> int:
    """The number of a life that begins at this time, larger than that of the life `before` it.

    It is the time, so that a sender whose disk was set back to an earlier state is still heard; should the clock have
    gone back, the last number and one.
    """
    return max(min(int(wall), LATEST), before + 1)


class Speaker:
    """Signs what one sender says in one life; `life` must be larger than that of all its lives before."""

    def __init__(self, signer: Signer, fleet: str, life: int) -> None:
        self.signer, self.fleet = signer, fleet
        self._counter = count(life << LIFE)

    @property
    def key(self) -> str:
        return self.signer.key

    def seal(self, kind: Kind, payload: bytes, *, job: str = "", run_id: str = "", device: str = ALL) -> bytes:
        """The message in its envelope, with the next counter."""
        return self._head(SigningContext(kind, self.fleet, job, run_id, device), payload) + payload

    def seal_frame(
        self,
        messages: Iterable[tuple[bytes, memoryview]],
        *,
        job: str,
        run_id: str,
        device: str = ALL,
        kind: Kind = "up",
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Chunks of one frame, each with its head: signed once, and none of them copied."""
        envelope = b""
        for head, data in messages:
            signed = b"" if envelope else head if chunks.series(head) else head + data  # a lone one as it stands
            envelope = envelope or self._head(SigningContext(kind, self.fleet, job, run_id, device), signed)
            yield envelope + head, data

    def _head(self, where: SigningContext, payload: bytes) -> bytes:
        raw, name = signing.key_bytes(self.key), where.run_id.encode()
        envelope = Envelope(self.key, next(self._counter), where.run_id, payload, b"")
        signature = self.signer.signature(_statement(where, raw, envelope))
        return _HEAD.pack(MAGIC, VERSION, len(name), raw, envelope.counter, signature) + name


def opened(message: bytes | memoryview) -> Envelope:
    """The envelope of a message; it is still to be proven."""
    if len(message) < _HEAD.size or message[:2] != MAGIC:
        raise Unproven("message.unsigned", "a message without a signature: is its sender older than this side?")
    _, version, length, raw, counter, signature = _HEAD.unpack_from(message)
    if version != VERSION:
        raise Unproven("message.version", f"envelope version {version}; this side speaks {VERSION}: update the older")
    end = _HEAD.size + length
    try:
        run_id = bytes(message[_HEAD.size : end]).decode("ascii")
    except UnicodeDecodeError:
        raise Unproven("message.unsigned", "an envelope that names no run") from None
    return Envelope(signing.key_text(raw), counter, run_id, message[end:], signature)


def _statement(place: SigningContext, raw: bytes, envelope: Envelope) -> bytes:
    """The very bytes that are signed: a list has one way to be written and one way to be read."""
    where = [place.kind, place.fleet, place.job, place.run_id, place.device]
    what = chunks.series(envelope.payload) or sha256(envelope.payload).digest()
    statement: bytes = msgpack.packb([*where, raw, envelope.counter, what])
    return PREFIX + statement
