"""The files of a journal: segments, one for each closing of a round, and the archive of their stories.

A segment is written until the record that closes its round; the next record begins the next one. Its answers are those
that were merged by that closing, all of them. The archive has one record for each segment that is no longer there.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from edgefl.errors import StoreError
from edgefl.system.disk import Disk
from edgefl.system.record_log import Placed, Record, RecordLog

ARCHIVE = "journal.log"
SEGMENTS = "journal-*.log"
VERSION = 1

Entry: TypeAlias = dict[str, Any]  # of the story: a fact, as JSON has it


class Segment:
    """What happened from one closing of a round to the next."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.number = int("".join(filter(str.isdigit, name)))
        self.log = RecordLog(disk, name)
        self.notes: list[Placed] = list(self.log.read())

    @property
    def closed(self) -> dict[str, Any] | None:
        """The closing of the round, and whom it merged: nothing comes after it."""
        closing: dict[str, Any] | None = self.notes[-1].note.get("closed") if self.notes else None
        return closing

    @property
    def merged(self) -> int | None:
        """The round whose closing merged the answers that are here."""
        return int(self.closed["round"]) if self.closed else None

    def append(self, *records: Record) -> None:
        self.notes += self.log.append(*records)

    def answers(self) -> list[Placed]:
        """The records of answers, in the order they came."""
        return [placed for placed in self.notes if "answer" in placed.note]

    def story(self) -> Iterator[Entry]:
        """What happened, in order."""
        for placed in self.notes:
            yield from placed.note.get("told", ())

    def must_be_whole(self) -> None:
        """It was closed and synced before the next one began: a power cut is no excuse."""
        if not self.closed or self.log.torn:
            raise self.log.damaged("before its round was closed")


class Archive:
    """The stories of segments that are gone. `last` is the newest of them."""

    def __init__(self, disk: Disk) -> None:
        self.log = RecordLog(disk, ARCHIVE)
        self.last, self._begun = 0, False
        for _ in self.story():
            pass

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
        """What happened in them, in order, as it can be read now."""
        for placed in self.log.read():
            note = placed.note
            if note.get("version", VERSION) != VERSION:
                raise StoreError(
                    f"{self.log.disk.where(ARCHIVE)}: written by another version of edgefl; go on with that one"
                )
            self._begun, self.last = True, note.get("segment", 0)
            yield from note.get("story", ())
