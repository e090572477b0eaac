"""The files of a journal: segments, which end where a round closes, and the archive of their stories.

A segment is written until a record that closes a round has filled it; the next record begins the next one. Between two
closings stand the answers that were merged by the second one, all of them. A large round fills a segment alone; small
ones share one, because a file costs more than they do. The archive has one record for each segment that is no longer
there.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

from edgefl.base.errors import StoreError
from edgefl.system.disk import Disk
from edgefl.system.record_log import PlacedRecord, Record, RecordLog

ARCHIVE = "journal.log"
SEGMENTS = "journal-*.log"
VERSION = 1
ROUNDS = 32  # closings that fill a segment,
BYTES = 16 << 20  # or so much at a closing,
NOTES = 4096  # or this number of records, whose notes are kept in memory

Entry: TypeAlias = dict[str, Any]  # of the story: a fact, as JSON has it


def number_of(name: str) -> int:
    """Which segment the file of this name is."""
    return int("".join(filter(str.isdigit, name)))


@dataclass(frozen=True, slots=True)
class Closing:
    """A round was closed: with whom, and the answers that it merged, in the order they came."""

    about: dict[str, Any]
    answers: tuple[PlacedRecord, ...]


class Segment:
    """What happened from one closing of a round to another.

    The bodies of answers are skipped, but for those of the last write to the `newest` segment: it may be torn.
    """

    def __init__(self, disk: Disk, name: str, *, newest: bool = True) -> None:
        self.number = number_of(name)
        self.log = RecordLog(disk, name)
        self.notes: list[PlacedRecord] = []
        self.closings: list[Closing] = []
        self.waiting: list[PlacedRecord] = []  # answers that came after the last closing
        self._took(self.log.read("last" if newest else "none"))

    @property
    def ended(self) -> bool:
        """Whether its last record closes a round."""
        return bool(self.notes) and "closed" in self.notes[-1].note

    @property
    def full(self) -> bool:
        """Whether nothing comes after it."""
        much = len(self.closings) >= ROUNDS or self.log.end >= BYTES or len(self.notes) >= NOTES
        return much and self.ended

    def read_on(self) -> None:
        """What another process has appended since."""
        self._took(self.log.read_on("last"))

    def append(self, *records: Record) -> None:
        self._took(self.log.append(*records))

    def _took(self, records: Iterable[PlacedRecord]) -> None:
        for placed in records:
            self.notes.append(placed)
            if "answer" in placed.note:
                self.waiting.append(placed)
            if closed := placed.note.get("closed"):
                self.closings.append(Closing(closed, tuple(self.waiting)))
                self.waiting.clear()

    def copied(self) -> "Segment":
        """The same as it is now: what is appended later is not in it."""
        other = copy(self)
        other.log, other.notes, other.closings, other.waiting = (
            copy(self.log),
            [*self.notes],
            [*self.closings],
            [*self.waiting],
        )
        return other

    def story(self) -> Iterator[Entry]:
        """What happened, in order."""
        for placed in self.notes:
            yield from placed.note.get("told", ())

    def must_be_whole(self) -> None:
        """It was closed and synced before the next one began: a power cut is no excuse."""
        if not self.ended or self.log.torn:
            raise self.log.damaged("before its round was closed")


class Archive:
    """The stories of segments that are gone. `last` is the newest of them.

    What was read first is kept for those who read the story at a start, until it is forgotten.
    """

    def __init__(self, disk: Disk) -> None:
        self.log = RecordLog(disk, ARCHIVE)
        self.last, self._begun = 0, False
        self._read: list[Entry] | None = [entry for _, entries in self.read_on() for entry in entries]

    def forget(self) -> None:
        """Free the memory: later readers of the story read the disk."""
        self._read = None

    def copied(self) -> "Archive":
        """The same, for another thread."""
        other = copy(self)
        other.log = copy(self.log)
        return other

    def begin(self) -> None:
        """From now on there is a journal."""
        if not self._begun:
            self.log.append(Record({"version": VERSION}))
            self._begun = True

    def take(self, segment: Segment) -> None:
        """After this returns, the segment may go."""
        self.log.append(Record({"segment": segment.number, "story": list(segment.story())}))
        self.last = segment.number

    def story(self) -> Iterator[Entry]:
        """What happened in them, in order: as it was read first, or as it can be read now."""
        if self._read is not None:
            yield from self._read
            return
        for _, entries in self._stories(self.log.read()):
            yield from entries

    def read_on(self) -> Iterator[tuple[int, list[Entry]]]:
        """The numbers and stories of those that have gone since it was read."""
        self.forget()
        return self._stories(self.log.read_on())

    def _stories(self, records: Iterable[PlacedRecord]) -> Iterator[tuple[int, list[Entry]]]:
        for placed in records:
            note = placed.note
            if note.get("version", VERSION) != VERSION:
                raise StoreError(
                    f"{self.log.disk.where(ARCHIVE)}: written by another version of edgefl; go on with that one"
                )
            self._begun, self.last = True, note.get("segment", 0)
            if self.last:
                yield self.last, note["story"]
