"""Answers that lie in the journal: what is small of them is in memory, the rest is read when a stage looks at it.

The answers of a round may be a thousand models. As many as are a few models stay in memory, which is fastest; of each
further one the journal's copy is enough: a stage that works on sums reads them one after another, in the order of the
devices, which is the order everywhere and so gives the same bits. A stage that wants all of them at once gets them as
maps of files, which the kernel keeps in memory only as long as there is room.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from mmap import mmap
from typing import Any

import numpy as np

from edgefl.base.vector import Array, State, Vector
from edgefl.job.config.privacy import needs_individuals
from edgefl.job.run.job import Job
from edgefl.job.run.work import unpack_answer
from edgefl.learn.contract import Update
from edgefl.system.disk import Disk
from edgefl.wire import frames
from edgefl.wire.frames import Unseal
from edgefl.wire.messages import Answer

HELD = 32 << 20  # bytes of answers that wait in memory for their merge: eight of a million parameters
SMALL = 1 << 14  # bytes of what comes beside an update that are not worth reading again

Load = Callable[[], Update]


class Stored(Update):
    """An update whose arrays are read at each look; weight, steps and what was seen are at hand."""

    __slots__ = ("_extra", "_load")
    _load: Load
    _extra: State | None

    def __new__(cls, *values: Any, **fields: Any) -> Update:  # type: ignore[misc]  # Any: those of an Update
        """What `dataclasses.replace` makes of one has its arrays at hand, like any other."""
        return Update(*values, **fields)

    @classmethod
    def of(cls, update: Update, load: Load) -> "Stored":
        """The update without its arrays; `load` gives it back."""
        small = sum(array.nbytes for array in update.extra.values()) <= SMALL
        extra = {name: np.array(array) for name, array in update.extra.items()} if small else None
        return cls._at(load, update, update.weight, extra)

    @classmethod
    def _at(cls, load: Load, like: Update, weight: float, extra: State | None) -> "Stored":
        stored = object.__new__(cls)
        same = {"steps": like.steps, "seen": like.seen, "devices": like.devices, "loss": like.loss}
        values = {"_load": load, "weight": weight, "_extra": extra, **same}
        for name, value in values.items():
            object.__setattr__(stored, name, value)
        return stored

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


class Shelf:
    """The answers that wait for their merge, by digest, of which only so many bytes are in memory."""

    def __init__(self) -> None:
        self.held = 0
        self.updates: dict[bytes, Update] = {}

    def put(self, digest: bytes, update: Update, load: Load | None) -> None:
        """Keep an answer; without a place on disk it is kept as it is."""
        self.drop(digest)
        size = _bytes(update)
        if load is not None and self.held + size > HELD:
            self.updates[digest] = Stored.of(update, load)
        else:
            self.updates[digest] = update
            self.held += size

    def take(self, digest: bytes) -> Update:
        """An answer, which is not kept any longer."""
        update = self.updates.pop(digest)
        self.held -= _bytes(update)
        return update

    def drop(self, digest: bytes) -> None:
        """It is not wanted, if it was there at all."""
        if digest in self.updates:
            self.take(digest)


def reader(job: Job, answer: Answer, place: Callable[[], memoryview], unseal: Unseal | None) -> Load:
    """How to read an answer again that was looked through before."""
    form, codec, most = job.sent, job.up, job.run.wire.limit_mb << 20

    def load() -> Update:
        body = frames.peek(place()).body(most, unseal)
        return unpack_answer(answer, body, form, codec, known=True)

    return load


def rows_for(job: Job, updates: Mapping[str, Update], disk: Disk | None) -> Mapping[str, Update]:
    """The updates as the job's stages want them: one that looks at all at once finds them as maps of files."""
    on_disk = any(isinstance(one, Stored) for one in updates.values())
    if disk is None or not on_disk or not any(needs_individuals(stage) for stage in job.stages):
        return updates
    return {device: _mapped(one, disk) if isinstance(one, Stored) else one for device, one in updates.items()}


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
    if isinstance(update, Stored):
        return 0
    return update.delta.nbytes + sum(array.nbytes for array in update.extra.values())
