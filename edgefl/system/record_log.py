"""A file that is only ever added to, whose reader knows what is whole.

    batch   magic 4 | length of the records 8 | checksum of its place, of this length and of the records 4 | records
    record  length of the note 4 | length of the body 8 | note, JSON | body, raw bytes, at a multiple of 64

The records of one `append` are one batch: together they are there after a power cut, or none of them is. A batch begins
only after the one before it was synced, so of all batches only the last one can be torn: it was promised to nobody,
and is cut off. The first one comes with its file, whole or not at all. Anything else that does not agree is damage, and
is not passed over.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any
from zlib import crc32

from pydantic_core import to_json

from edgefl.errors import StoreError
from edgefl.system.disk import ALIGNED, Bytes, Disk

log = logging.getLogger(__name__)

MAGIC = b"efl1"
_HEAD = Struct("<4sQI")
_SIZES = Struct("<IQ")


@dataclass(frozen=True, slots=True)
class Record:
    """Something to keep: a note, small, and a body, of any size."""

    note: dict[str, Any]
    body: Bytes = b""


@dataclass(frozen=True, slots=True)
class Placed:
    """A record in the file: its note, and where its body is."""

    note: dict[str, Any]
    start: int
    size: int


class RecordLog:
    """One file of records on a disk; it is read before it is added to. `end` is where the whole ones end."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name, self.end = disk, name, 0
        self.torn = False  # whether something that is not whole stood behind it when it was read
        self._read = False
        self._clean = False  # whether nothing stands behind the end

    def append(self, *records: Record) -> tuple[Placed, ...]:
        """After this returns, the records survive a power cut; if it fails, none of them is there."""
        if not self._read:
            list(self.read())
        parts, places = _packed(records, self.end + _HEAD.size)
        size = sum(map(len, parts))
        head = _HEAD.pack(MAGIC, size, _checksum(self.end, size, parts))
        if self.end == 0:
            self.disk.write(self.name, b"".join((head, *parts)))
        else:
            self._cut()
            self._clean = False
            self.disk.append(self.name, head, *parts)
        self._clean = True
        self.end += _HEAD.size + size
        return places

    def read(self) -> Iterator[Placed]:
        """Every record that is whole, in order; `end` is behind the last one afterwards."""
        self.end, self._clean = 0, False
        size = self.disk.size(self.name)
        while size and (batch := _batch(self.disk, self.name, self.end, size)):
            yield from _unpacked(batch, self.end + _HEAD.size)
            self.end += _HEAD.size + len(batch)
        self._read = True
        if size is None or self.disk.size(self.name) is None:  # its owner deleted it meanwhile
            return
        if self.end == 0:
            raise self.damaged("where it should begin")
        if self.end < size and (later := self._later(size)) is not None:
            raise self.damaged(f"and whole again from byte {later} on")
        self.torn = self.end < size

    def recover(self) -> None:
        """Whoever goes on writing what he has read: a torn end goes, and what is there is made to last."""
        size = self.disk.size(self.name)
        if size is None:
            return
        if self.end < size:
            log.warning("cut off what a power cut left file=%s bytes=%d", self.disk.where(self.name), size - self.end)
        self._cut()
        self.disk.sync(self.name)

    def body(self, record: Placed) -> memoryview:
        """The body of a record where it lies: nothing is read before it is looked at."""
        body = self.disk.view(self.name, record.start, record.size)
        if len(body) != record.size:
            raise self.damaged("its end is gone")
        return body

    def damaged(self, how: str) -> StoreError:
        """What to say of a file that cannot be believed."""
        return StoreError(
            f"{self.disk.where(self.name)}: damaged at byte {self.end}, {how}; restore it from a copy, or begin anew"
            " with --fresh"
        )

    def _cut(self) -> None:
        if not self._clean and (self.disk.size(self.name) or 0) > self.end:
            self.disk.truncate(self.name, self.end)
        self._clean = True

    def _later(self, size: int) -> int | None:
        """Where a whole batch stands behind one that is not. A body cannot pretend to be one: it would have to know
        where in the file it will stand.
        """
        rest = self.disk.read(self.name, self.end + 1) or b""
        at = rest.find(MAGIC)
        while at >= 0:
            place = self.end + 1 + at
            if _batch(self.disk, self.name, place, size):
                return place
            at = rest.find(MAGIC, at + 1)
        return None


def _packed(records: tuple[Record, ...], start: int) -> tuple[list[Bytes], tuple[Placed, ...]]:
    parts: list[Bytes] = []
    places = []
    for record in records:
        note = _json(record.note)
        if record.body:  # blanks behind JSON mean nothing, and numbers in the body can be used where they lie
            note += b" " * (-(start + _SIZES.size + len(note)) % ALIGNED)
        start += _SIZES.size + len(note)
        places.append(Placed(record.note, start, len(record.body)))
        start += len(record.body)
        parts += [_SIZES.pack(len(note), len(record.body)) + note, record.body]
    return parts, tuple(places)


def _json(note: dict[str, Any]) -> bytes:
    try:
        return to_json(note, inf_nan_mode="constants")  # a third of the time of `json.dumps`
    except ValueError:  # the name of a file that is no text, which JSON can escape
        return json.dumps(note).encode()


def _unpacked(batch: bytes, start: int) -> Iterator[Placed]:
    at = 0
    while at < len(batch):
        note, body = _SIZES.unpack_from(batch, at)
        at += _SIZES.size
        yield Placed(json.loads(batch[at : at + note]), start + at + note, body)
        at += note + body


def _batch(disk: Disk, name: str, at: int, size: int) -> bytes | None:
    """The records of the batch that stands here, if it is whole."""
    head = disk.read(name, at, _HEAD.size) or b""
    if len(head) < _HEAD.size:
        return None
    magic, length, checksum = _HEAD.unpack(head)
    if magic != MAGIC or length > size - at - _HEAD.size:
        return None
    batch = disk.read(name, at + _HEAD.size, length) or b""
    return batch if len(batch) == length and _checksum(at, length, [batch]) == checksum else None


def _checksum(at: int, size: int, parts: list[Bytes]) -> int:
    sum = crc32(at.to_bytes(8, "little") + size.to_bytes(8, "little"))
    for part in parts:
        sum = crc32(part, sum)
    return sum
