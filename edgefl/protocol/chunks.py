"""Frames travel in chunks: small enough for every broker, resumable, and recognised by the hash of the whole.

magic 2 | version 1 | 0 | sha256 of the frame 32 | index 4 | count 4 | size of the frame 8 | data
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from edgefl.errors import WireError

MAGIC = b"EC"
VERSION = 1
_HEAD = struct.Struct("<2sBB32sIIQ")
HEAD = _HEAD.size
_INDEX = 36  # where the index stands; the count is behind it
_BEGINNING, _COUNT = MAGIC + bytes([VERSION]), struct.Struct("<I")
CHUNK = 120 * 1024 - HEAD  # the whole message is 120 KiB: inside every public broker's limit, and the fastest measured


def digest(frame: bytes | bytearray) -> bytes:
    """What a frame is known by."""
    return sha256(frame).digest()


def count(size: int) -> int:
    """How many chunks a frame of that size has."""
    return max(1, -(-size // CHUNK))


def chunk(frame: bytes | bytearray, known_as: bytes, index: int) -> bytes:
    """The message that carries chunk `index` of the frame."""
    head = _HEAD.pack(MAGIC, VERSION, 0, known_as, index, count(len(frame)), len(frame))
    return b"".join([head, memoryview(frame)[index * CHUNK : (index + 1) * CHUNK]])


def split(frame: bytes | bytearray, known_as: bytes) -> Iterator[bytes]:
    """All messages of the frame, in order."""
    return (chunk(frame, known_as, index) for index in range(count(len(frame))))


def series(message: bytes) -> bytes | None:
    """What the chunks of one frame have in common, if this is one of several: everything in front but the index."""
    if message[:3] != _BEGINNING or len(message) < HEAD or _COUNT.unpack_from(message, _INDEX + 4)[0] < 2:
        return None
    return message[:_INDEX] + message[_INDEX + 4 : HEAD]


def index(message: bytes) -> int:
    """Which chunk of its frame this is, or says it is."""
    return int.from_bytes(message[_INDEX : _INDEX + 4], "little")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message, read."""

    digest: bytes
    index: int
    count: int
    size: int
    data: memoryview


def read(message: bytes, limit: int) -> Chunk:
    """The chunk in this message, if its numbers agree with each other and with the limit."""
    if len(message) < HEAD:
        raise WireError("wire.truncated", f"a chunk has at least {HEAD} bytes, this one {len(message)}")
    magic, version, _, known_as, index, number, size = _HEAD.unpack_from(message)
    if magic != MAGIC:
        raise WireError("wire.magic", f"a chunk begins with {MAGIC!r}, this one with {magic!r}")
    if version != VERSION:
        raise WireError("wire.version", f"chunk version {version}; this side speaks {VERSION}: update the older side")
    if size > limit:
        raise WireError("wire.too_large", f"a frame of {size} bytes; the limit is {limit}")
    if number != count(size) or index >= number:
        raise WireError("wire.malformed", f"chunk {index} of {number} for a frame of {size} bytes")
    data = memoryview(message)[HEAD:]
    if len(data) != min(CHUNK, size - index * CHUNK):
        raise WireError("wire.truncated", f"chunk {index} of {number} came with {len(data)} bytes")
    return Chunk(known_as, index, number, size, data)


@dataclass(slots=True)
class _Transfer:
    """What has come of a frame: from its beginning without a gap, and what came ahead of its turn."""

    size: int
    buffer: bytearray = field(default_factory=bytearray)
    ahead: dict[int, memoryview] = field(default_factory=dict)
    next: int = 0  # the first chunk that is not in the buffer

    def add(self, part: Chunk) -> None:
        if part.index < self.next:
            return
        self.ahead[part.index] = part.data
        while (data := self.ahead.pop(self.next, None)) is not None:
            self.buffer += data  # grows with what has come, whatever was announced
            self.next += 1

    @property
    def came(self) -> int:
        return self.next + len(self.ahead)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return len(self.buffer) + sum(len(data) for data in self.ahead.values())


@dataclass(slots=True)
class Assembler:
    """Puts one sender's chunks together: frames up to `limit`, at most `transfers` at a time."""

    limit: int
    transfers: int = 2
    _open: OrderedDict[bytes, _Transfer] = field(default_factory=OrderedDict)

    def add(self, message: bytes) -> tuple[bytes, bytes | bytearray] | None:
        """The digest and the frame, when this chunk was the last one missing."""
        part = read(message, self.limit)
        if part.count == 1:
            return self._whole(part.digest, bytes(part.data))
        transfer = self._open.get(part.digest)
        if transfer is None:
            if len(self._open) >= self.transfers:
                self._open.popitem(last=False)  # a sender that begins anew gives up its oldest transfer
            transfer = self._open[part.digest] = _Transfer(part.size)
        if transfer.size != part.size:
            raise WireError("wire.malformed", "two sizes for one digest")
        transfer.add(part)
        if transfer.came < part.count:
            return None
        del self._open[part.digest]
        return self._whole(part.digest, transfer.buffer)

    def missing(self, known_as: bytes) -> list[int]:
        """Which chunks of a transfer that has begun are still to come."""
        transfer = self._open.get(known_as)
        if transfer is None:
            return []
        return [index for index in range(transfer.next, count(transfer.size)) if index not in transfer.ahead]

    def drop(self, known_as: bytes) -> None:
        """Give up a transfer."""
        self._open.pop(known_as, None)

    def underway(self) -> tuple[bytes, ...]:
        """The transfers that have begun and are not complete."""
        return tuple(self._open)

    def held(self) -> int:
        """Bytes of transfers that are not complete."""
        return sum(transfer.held for transfer in self._open.values())

    def share(self) -> float | None:
        """How much of the newest transfer has come, between 0 and 1; None when there is none."""
        if not self._open:
            return None
        transfer = next(reversed(self._open.values()))
        return transfer.came / count(transfer.size)

    def _whole(self, known_as: bytes, frame: bytes | bytearray) -> tuple[bytes, bytes | bytearray]:
        if sha256(frame).digest() != known_as:
            raise WireError("wire.corrupt", "the frame's hash is not the one its chunks announced")
        return known_as, frame
