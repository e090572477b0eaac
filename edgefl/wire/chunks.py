"""Frames travel in chunks: small enough for every broker, resumable, and recognised by the hash of the whole.

magic 2 | version 1 | 0 | BLAKE3 of the frame 32 | index 4 | count 4 | size of the frame 8 | data

A chunk is 120 KiB, which every public broker takes. Where the broker takes more, one message carries several that
follow one another, `index` being the first: what is missing is counted in chunks, however they travelled.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from blake3 import blake3

from edgefl.base.errors import WireError

Bytes: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"EC"
VERSION = 1
_HEAD = struct.Struct("<2sBB32sIIQ")
HEAD = _HEAD.size
_INDEX = 36  # where the index stands; the count is behind it
_BEGINNING, _COUNT = MAGIC + bytes([VERSION]), struct.Struct("<I")
CHUNK = 120 * 1024 - HEAD  # the whole message is 120 KiB: inside every public broker's limit
TOGETHER = (4, 2, 1)  # chunks in one message, the most first; more gain nothing, and a line that breaks loses them all
AROUND = 512  # bytes around the chunks of a message at most: an envelope, the topic, and what MQTT adds


def digest(frame: Bytes) -> bytes:
    """What a frame is known by."""
    return blake3(frame).digest()


def count(size: int) -> int:
    """How many chunks a frame of that size has."""
    return max(1, -(-size // CHUNK))


def together(largest: int) -> int:
    """Return how many chunks go into one message where a packet has this size at most."""
    return next((number for number in TOGETHER if number * CHUNK + HEAD + AROUND <= largest), 1)


def runs(indexes: Iterable[int], number: int) -> Iterator[tuple[int, int]]:
    """Indexes that follow one another, `number` at most: the first of each run, and how many they are."""
    first = length = 0
    for index in indexes:
        if length and (index != first + length or length == number):
            yield first, length
            length = 0
        if not length:
            first = index
        length += 1
    if length:
        yield first, length


def parts(frame: Bytes, known_as: bytes, index: int, number: int = 1) -> tuple[bytes, memoryview]:
    """Return the message that carries chunks of the frame from `index` on: its head, and its data, not copied."""
    head = _HEAD.pack(MAGIC, VERSION, 0, known_as, index, count(len(frame)), len(frame))
    return head, memoryview(frame)[index * CHUNK : (index + number) * CHUNK]


def chunk(frame: Bytes, known_as: bytes, index: int, number: int = 1) -> bytes:
    """The same in one piece."""
    return b"".join(parts(frame, known_as, index, number))


def split(frame: Bytes, known_as: bytes, number: int = 1) -> Iterator[bytes]:
    """All messages of the frame, in order."""
    return (chunk(frame, known_as, index, number) for index in range(0, count(len(frame)), number))


def series(message: Bytes) -> bytes | None:
    """What the chunks of one frame have in common, if this is one of several: everything in front but the index."""
    if message[:3] != _BEGINNING or len(message) < HEAD or _COUNT.unpack_from(message, _INDEX + 4)[0] < 2:
        return None
    return bytes(message[:_INDEX]) + bytes(message[_INDEX + 4 : HEAD])


def indexes(message: Bytes) -> range:
    """Which chunks of its frame these are, or say they are."""
    first = int.from_bytes(message[_INDEX : _INDEX + 4], "little")
    return range(first, first + count(len(message) - HEAD))


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message, read: a chunk, or several that follow one another."""

    digest: bytes
    index: int
    count: int
    size: int
    data: memoryview


def read(message: Bytes, limit: int) -> Chunk:
    """The chunks in this message, if its numbers agree with each other and with the limit."""
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
    together = min(count(len(data)), TOGETHER[0])
    if len(data) != min(together * CHUNK, size - index * CHUNK):
        raise WireError("wire.truncated", f"chunk {index} of {number} came with {len(data)} bytes")
    return Chunk(known_as, index, number, size, data)


@dataclass(slots=True)
class _Transfer:
    """What has come of a frame: from its beginning without a gap, and what came ahead of its turn."""

    size: int
    parts: list[memoryview] = field(default_factory=list)
    ahead: dict[int, memoryview] = field(default_factory=dict)
    next: int = 0  # the first chunk that is not among the parts
    hash: blake3 = field(default_factory=blake3)  # of the parts: each byte while it is still at hand
    held: int = 0  # bytes in memory

    def add(self, part: Chunk) -> None:
        for index in range(part.index, part.index + count(len(part.data))):
            if index >= self.next and index not in self.ahead:
                start = (index - part.index) * CHUNK
                data = self.ahead[index] = part.data[start : start + CHUNK]
                self.held += len(data)  # grows with what has come, whatever was announced
        while (after := self.ahead.pop(self.next, None)) is not None:
            self.parts.append(after)
            self.hash.update(after)
            self.next += 1

    @property
    def came(self) -> int:
        return self.next + len(self.ahead)


@dataclass(slots=True)
class Assembler:
    """Puts one sender's chunks together: frames up to `limit`, at most `transfers` at a time."""

    limit: int
    transfers: int = 2
    _open: OrderedDict[bytes, _Transfer] = field(default_factory=OrderedDict)

    def add(self, message: Bytes) -> tuple[bytes, bytes | bytearray] | None:
        """The digest and the frame, when this message had the last chunk that was missing."""
        part = read(message, self.limit)
        if part.count == 1:
            return _whole(part.digest, bytes(part.data), digest(part.data))
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
        return _whole(part.digest, b"".join(transfer.parts), transfer.hash.digest())

    def missing(self, known_as: bytes) -> list[int]:
        """Which chunks of a transfer that has begun are still to come."""
        transfer = self._open.get(known_as)
        if transfer is None:
            return []
        return [index for index in range(transfer.next, count(transfer.size)) if index not in transfer.ahead]

    def drop(self, known_as: bytes) -> int:
        """Give up a transfer; how large it would have been."""
        transfer = self._open.pop(known_as, None)
        return 0 if transfer is None else transfer.size

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


def _whole(known_as: bytes, frame: bytes | bytearray, hashed: bytes) -> tuple[bytes, bytes | bytearray]:
    if hashed != known_as:
        raise WireError("wire.corrupt", "the frame's hash is not the one its chunks announced")
    return known_as, frame
