"""An append-only file of records, whose reader knows which of them are whole.

    batch   magic 4 | length of the records 8 | checksum of its place, of this length and of the records 4
            | the same of the records without their bodies 4 | records
    record  length of the note 4 | length of the body 8 | note, JSON | body, raw bytes, at a multiple of 64

The records of one `append` are one batch: together they are there after a power cut, or none of them is. A batch
begins only after the one before it was synced, so only the last batch can be torn. No receipt was sent for it, so it
is cut off. The first one comes with its file, whole or not at all. Anything else that does not agree is damage, and is
not passed over.

Notes have a checksum of their own, so a reader of notes skips the bodies, but for those that may be torn (`Bodies`).
"""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Literal, TypeAlias
from zlib import crc32

from pydantic_core import to_json

from edgefl.base.errors import StoreError
from edgefl.system.disk import ALIGNED, Bytes, Disk
from edgefl.system.json_text import parse_json

log = logging.getLogger(__name__)

MAGIC = b"efl2"
FIRST, LARGEST = 1 << 12, 1 << 20  # bytes that are read at a time: at first, and where everything is wanted
_HEAD = Struct("<4sQII")
_SIZES = Struct("<IQ")
_SHORTEST = len(b"{}")  # bytes of a note

# Which bodies a reader compares with their checksum: all; those of a batch at the end of the file, which may be torn;
# or none, because another file was begun after this one was synced.
Bodies: TypeAlias = Literal["all", "last", "none"]


@dataclass(frozen=True, slots=True)
class Record:
    """Something to keep: a note, small, and a body, of any size."""

    note: dict[str, Any]
    body: Bytes = b""


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record in the file: its note, and where its body is."""

    note: dict[str, Any]
    start: int
    size: int


class RecordLog:
    """One file of records on a disk; it is read before it is added to. `end` is where the whole ones end."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name, self.end = disk, name, 0
        self.torn = False  # whether something that is not whole stood behind it when it was read
        self._last = 0, b""  # where the last batch begins, and its head
        self._read = False
        self._clean = False  # whether nothing stands behind the end

    def append(self, *records: Record) -> tuple[PlacedRecord, ...]:
        """After this returns, the records survive a power cut; if it fails, none of them is there."""
        if not self._read:
            list(self.read())
        parts, places = _packed(records, self.end + _HEAD.size)
        size = sum(map(len, parts))
        head = _HEAD.pack(MAGIC, size, _checksum(self.end, size, parts), _checksum(self.end, size, parts[::2]))
        if self.end == 0:
            self.disk.write(self.name, b"".join((head, *parts)))
        else:
            self._cut()
            self._clean = False
            self.disk.append(self.name, head, *parts)
        self._clean = True
        self._last = self.end, head
        self.end += _HEAD.size + size
        return places

    def read(self, bodies: Bodies = "all") -> Iterator[PlacedRecord]:
        """Every record that is whole, in order; `end` is behind the last one afterwards."""
        self.end, self._last, self._clean = 0, (0, b""), False
        yield from self.read_on(bodies)

    def read_on(self, bodies: Bodies = "all") -> Iterator[PlacedRecord]:
        """Every whole record behind those that were read: what another process has appended since."""
        size, window = self.disk.size(self.name), _Window(self.disk, self.name)
        while size and (batch := self._batch(window, size, bodies)):
            yield from batch.records
            self._last, self.end = (self.end, batch.head), batch.end
        self._read = True
        if size is None or self.disk.size(self.name) is None:  # its owner deleted it meanwhile
            return
        if self.end == 0:
            raise self.damaged("where it should begin")
        if self.end < size and (later := self._later(size)) is not None:
            raise self.damaged(f"and whole again from byte {later} on")
        self.torn = self.end < size

    def _batch(self, window: "_Window", size: int, bodies: Bodies) -> "_Batch | None":
        try:
            return _batch(window, self.end, size, bodies)
        except (ValueError, error):  # another program made it, with the right checksum
            raise self.damaged("where no readable record begins") from None

    @property
    def replaced(self) -> bool:
        """Whether the last batch that was read is no longer in its place: the file is gone, or is another one."""
        at, head = self._last
        return bool(head) and self.disk.read(self.name, at, len(head)) != head

    def recover(self) -> None:
        """Prepare a log that was read for further writing: cut off a torn end, sync what is there."""
        size = self.disk.size(self.name)
        if size is None:
            return
        if self.end < size:
            log.warning("cut off what a power cut left file=%s bytes=%d", self.disk.where(self.name), size - self.end)
        self._cut()
        self.disk.sync(self.name)

    def body(self, record: PlacedRecord) -> memoryview:
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
        window, at, overlap = _Window(self.disk, self.name), self.end + 1, len(MAGIC) - 1
        while at + overlap < size and (piece := self.disk.read(self.name, at, min(LARGEST, size - at))):
            for offset in _places(piece, MAGIC):
                if _batch(window, at + offset, size, "none"):
                    return at + offset
            at += max(1, len(piece) - overlap)
        return None


def _packed(records: tuple[Record, ...], start: int) -> tuple[list[Bytes], tuple[PlacedRecord, ...]]:
    parts: list[Bytes] = []
    places = []
    for record in records:
        note = _json(record.note)
        if record.body:  # blanks behind JSON mean nothing, and numbers in the body can be used where they lie
            note += b" " * (-(start + _SIZES.size + len(note)) % ALIGNED)
        start += _SIZES.size + len(note)
        places.append(PlacedRecord(record.note, start, len(record.body)))
        start += len(record.body)
        parts += [_SIZES.pack(len(note), len(record.body)) + note, record.body]
    return parts, tuple(places)


def _json(note: dict[str, Any]) -> bytes:
    try:
        return to_json(note, inf_nan_mode="constants")  # a third of the time of `json.dumps`
    except ValueError:  # the name of a file that is no text, which JSON can escape
        return json.dumps(note).encode()


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that is whole."""

    head: bytes
    records: list[PlacedRecord]
    end: int


class _Window:
    """The piece of a file that was read last. Pieces grow as long as one is read behind the other."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name
        self._start, self._piece, self._size = 0, b"", FIRST

    def take(self, at: int, size: int) -> bytes:
        """These bytes of the file; fewer, if it ends before."""
        end = self._start + len(self._piece)
        if at < self._start or at + size > end:
            self._size = min(2 * self._size, LARGEST) if self._start < at <= end else FIRST
            self._start, self._piece = at, self.disk.read(self.name, at, max(size, self._size)) or b""
        return self._piece[at - self._start : at - self._start + size]

    def pieces(self, at: int, size: int) -> Iterator[bytes]:
        """All of these bytes, one piece after another."""
        for start in range(at, at + size, LARGEST):
            yield self.disk.read(self.name, start, min(LARGEST, at + size - start)) or b""


def _batch(window: _Window, at: int, size: int, bodies: Bodies) -> _Batch | None:
    """The batch that stands here in a file of this size, if it is whole."""
    head = window.take(at, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, length, checksum, of_notes = _HEAD.unpack(head)
    start, end = at + _HEAD.size, at + _HEAD.size + length
    if magic != MAGIC or end > size:
        return None
    spans = _spans(window, start, end)
    if spans is None or _checksum(at, length, (note for note, _, _ in spans)) != of_notes:
        return None
    may_be_torn = bodies == "all" or (bodies == "last" and end == size)
    has_bodies = any(body for _, _, body in spans)
    if has_bodies and may_be_torn and _checksum(at, length, window.pieces(start, length)) != checksum:
        return None
    return _Batch(
        head, [PlacedRecord(parse_json(note[_SIZES.size :]), place, body) for note, place, body in spans], end
    )


def _spans(window: _Window, at: int, end: int) -> list[tuple[bytes, int, int]] | None:
    """Of each record between these places its sizes and note as they stand there, where its body is, and how long."""
    spans = []
    while at < end:
        sizes = window.take(at, _SIZES.size)
        if len(sizes) < _SIZES.size:
            return None
        note, body = _SIZES.unpack(sizes)
        place = at + _SIZES.size + note
        if note < _SHORTEST or place + body > end:
            return None
        spans.append((window.take(at, place - at), place, body))
        at = place + body
    return spans


def _places(piece: bytes, magic: bytes) -> Iterator[int]:
    at = piece.find(magic)
    while at >= 0:
        yield at
        at = piece.find(magic, at + 1)


def _checksum(at: int, size: int, parts: Iterable[Bytes]) -> int:
    """Of these parts of a batch, of its place, and of the length of its records."""
    sum = crc32(at.to_bytes(8, "little") + size.to_bytes(8, "little"))
    for part in parts:
        sum = crc32(part, sum)
    return sum
