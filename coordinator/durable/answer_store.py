"""Every answer of a run from its arrival to its merge. Most of the numbers of accepted answers stay in the journal.

The answers of a round may be a thousand models. A few of them stay in memory, which is fastest; for all others the
journal's copy is enough. A stage that works on sums reads them one after another, in the order of the devices: every
driver uses that order, and so gets the same bits. A stage that needs all of them at once gets memory-mapped files,
which the kernel keeps in memory only as long as there is room.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from mmap import mmap
from typing import Any, Literal, TypeAlias

import numpy as np

from coordinator.durable.journal import AnswerFrame
from edgefl.base.vector import Array, State, Vector
from edgefl.job.config.privacy import needs_individuals
from edgefl.job.run.job import Job
from edgefl.job.run.work import unpack_answer
from edgefl.learn.contract import Update
from edgefl.system.disk import Bytes, Disk
from edgefl.wire import frames
from edgefl.wire.frames import Unread, Unseal
from edgefl.wire.messages import Answer

HELD = 32 << 20  # bytes of answers that wait in memory for their merge: eight of a million parameters
SMALL = 1 << 14  # bytes of what comes beside an update that are not worth reading again

Load = Callable[[], Update]
Place: TypeAlias = Callable[[], memoryview]  # reads a frame again from the journal
Phase: TypeAlias = Literal["received", "accepted", "written", "counted"]


class StoredAnswer(Update):
    """An update whose arrays are read at each look; weight, steps and what was seen are at hand."""

    __slots__ = ("_extra", "_load")
    _load: Load
    _extra: State | None

    def __init__(self, *values: Any, **fields: Any) -> None:  # Any: those of an Update
        """Make one whose arrays are at hand: `dataclasses.replace` calls this with all fields of an update."""
        at_hand = Update(*values, **fields)
        self._fill(lambda: at_hand, at_hand, at_hand.weight, at_hand.extra)

    @classmethod
    def of(cls, update: Update, load: Load) -> "StoredAnswer":
        """The update without its arrays; `load` gives it back."""
        small = sum(array.nbytes for array in update.extra.values()) <= SMALL
        extra = {name: np.array(array) for name, array in update.extra.items()} if small else None
        return cls._at(load, update, update.weight, extra)

    @classmethod
    def _at(cls, load: Load, like: Update, weight: float, extra: State | None) -> "StoredAnswer":
        stored = object.__new__(cls)
        stored._fill(load, like, weight, extra)
        return stored

    def _fill(self, load: Load, like: Update, weight: float, extra: State | None) -> None:
        same = {"steps": like.steps, "seen": like.seen, "devices": like.devices, "loss": like.loss}
        for name, value in {"_load": load, "weight": weight, "_extra": extra, **same}.items():
            object.__setattr__(self, name, value)

    @property
    def delta(self) -> Vector:
        return self._load().delta

    @property
    def extra(self) -> State:
        return self._load().extra if self._extra is None else self._extra

    def opened(self) -> Update:
        return self._load().weighing(self.weight)

    def weighing(self, weight: float) -> Update:
        return self._at(self._load, self, weight, self._extra)

    def through(self, change: Callable[[Vector, State], tuple[Vector, State]]) -> Update:
        load = self._load
        extra = None if self._extra is None else change(np.zeros(0, np.float32), self._extra)[1]
        return self._at(lambda: load().through(change), self, self.weight, extra)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An answer as it came from its device: the message, its unread body, and the frame that the journal keeps."""

    message: Answer
    unread: Unread
    frame: AnswerFrame


@dataclass(slots=True)
class AnswerRecord:
    """One answer in the store."""

    phase: Phase
    arrival: Arrival | None  # None once it is counted: the update is enough
    update: Update | None = None  # once it was opened
    place: Place | None = None  # how to read the frame again, once the journal has it


class AnswerStore:
    """The answers of a run by digest, one record for each.

        received ─ accept ─▶ accepted ─ written ─▶ written ─ count ─▶ counted ─ take ─▶ merged
        received ─ put_away ─▶ refused or ignored           counted ─ drop ─▶ of an abandoned round

    Without a journal an accepted answer is counted at once. Of the counted answers at most `HELD` bytes are in memory.
    A device may send an accepted answer again: that changes nothing here, and putting it away removes nothing.
    """

    def __init__(self) -> None:
        self.records: dict[bytes, AnswerRecord] = {}
        self.held = 0  # bytes of the counted answers that are in memory

    def receive(self, device: str, digest: bytes, message: Answer, unread: Unread, frame: Bytes) -> None:
        """Keep an answer until the core has a verdict on it."""
        record = self.records.get(digest)
        if record is None or record.phase == "received":
            arrival = Arrival(message, unread, AnswerFrame(message.round, device, digest, frame))
            self.records[digest] = AnswerRecord("received", arrival)

    def open(self, digest: bytes, opened: Callable[[Arrival], Update]) -> Update:
        """Return the update of an answer, which `opened` reads the first time."""
        record = self.records[digest]
        if record.update is None:
            assert record.arrival is not None  # noqa: S101 - only an opened answer is counted
            record.update = opened(record.arrival)
        return record.update

    def put_away(self, digest: bytes) -> None:
        """Remove an answer that was refused or ignored, unless the same one was accepted before."""
        record = self.records.get(digest)
        if record is not None and record.phase == "received":
            del self.records[digest]

    def accept(self, digest: bytes) -> AnswerFrame | None:
        """Mark an answer as accepted; return its frame for the journal, or None if it is counted already."""
        record = self.records[digest]
        if record.phase == "received":
            record.phase = "accepted"
        return record.arrival.frame if record.arrival else None

    def written(self, digest: bytes, place: Place) -> None:
        """Mark an accepted answer as written to the journal, where `place` reads its frame."""
        record = self.records[digest]
        record.phase, record.place = "written", place

    def count(self, digest: bytes, read_again: Callable[[Answer, Place], Load]) -> None:
        """Count an accepted answer, which drops its frame; one that is counted already stays as it is."""
        record = self.records[digest]
        if record.arrival is None:
            return
        assert record.update is not None  # noqa: S101 - the core has no verdict before it was opened
        load = read_again(record.arrival.message, record.place) if record.place else None
        self.put(digest, record.update, load)

    def put(self, digest: bytes, update: Update, load: Load | None) -> None:
        """Add a counted answer; `load` reads it again from the journal, if it is there."""
        self.drop(digest)
        size = _bytes(update)
        if load is not None and self.held + size > HELD:
            self.records[digest] = AnswerRecord("counted", None, StoredAnswer.of(update, load))
        else:
            self.records[digest] = AnswerRecord("counted", None, update)
            self.held += size

    def take(self, digest: bytes) -> Update:
        """Return a counted answer for its merge, and remove it."""
        record = self.records[digest]
        assert record.update is not None and record.arrival is None  # noqa: S101, PT018 - the core merges what counts
        del self.records[digest]
        self.held -= _bytes(record.update)
        return record.update

    def drop(self, *digests: bytes) -> None:
        """Remove counted answers of these digests, as far as there are any."""
        for digest in digests:
            if digest in self.records and self.records[digest].phase == "counted":
                self.take(digest)


def reader(job: Job, answer: Answer, place: Place, unseal: Unseal | None) -> Load:
    """How to read an answer again that was looked through before."""
    form, codec, most = job.sent, job.up, job.run.wire.limit_mb << 20

    def load() -> Update:
        body = frames.peek(place()).body(most, unseal)
        return unpack_answer(answer, body, form, codec, known=True)

    return load


def rows_for(job: Job, updates: Mapping[str, Update], disk: Disk | None) -> Mapping[str, Update]:
    """The updates as the job's stages want them: one that looks at all at once finds them as maps of files."""
    on_disk = any(isinstance(one, StoredAnswer) for one in updates.values())
    if disk is None or not on_disk or not any(needs_individuals(stage) for stage in job.stages):
        return updates
    return {device: _mapped(one, disk) if isinstance(one, StoredAnswer) else one for device, one in updates.items()}


def _mapped(update: Update, disk: Disk) -> Update:
    """Numbers that the journal holds as they are need no other place; what was packed or sealed gets one."""
    opened = update.opened()
    arrays = {name: _placed(array, disk) for name, array in {**opened.extra, _DELTA: opened.delta}.items()}
    return replace(opened, delta=arrays.pop(_DELTA), extra=arrays)


_DELTA = ""  # which no array beside an update is called


def _placed(array: Array, disk: Disk) -> Array:
    if array.nbytes <= SMALL or _lies_in_a_file(array):
        return array
    room = np.frombuffer(disk.scratch(array.nbytes), array.dtype, prod(array.shape)).reshape(array.shape)
    room[...] = array
    return room


def _lies_in_a_file(array: Array) -> bool:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, memoryview) and isinstance(owner.obj, mmap)


def _bytes(update: Update) -> int:
    if isinstance(update, StoredAnswer):
        return 0
    return update.delta.nbytes + sum(array.nbytes for array in update.extra.values())
