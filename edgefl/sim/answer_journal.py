"""What emulated devices have trained, kept so that a run that was killed need not train it again.

    order ──▶ known? ──▶ the answer as it was            (the fleet is played again from its beginning, to the bit)
                └──▶ engine ──▶ answer ──▶ journal

An emulated fleet is a whole world: agents with updates in hand, messages on their way, hours, breakdowns. No part of it
needs to be written down, because it follows from the seed and from what devices answer, and almost all of the time
goes into their training. So that alone is kept, under a hash of all that it depends on, where its training took so long
that to keep it costs next to nothing (`WORTH`). What is missing in the journal (its last seconds, what was cheap, all
beyond `MOST`) is trained again, to the same bits.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from blake3 import blake3

from edgefl.base.errors import StoreError
from edgefl.base.vector import Array, State
from edgefl.job.run.work import ModelRef, Result, WorkResult
from edgefl.sim.engines import DeviceOrder, Engine
from edgefl.system.disk import Disk
from edgefl.system.record_log import PlacedRecord, Record, RecordLog

log = logging.getLogger(__name__)

ANSWERS = "answers.log"
MOST = 4 << 30  # bytes of answers that are kept
WORTH = 4e7  # bytes of an answer that are kept for a second of its training; to write them took a twentieth of that
WAITING = 32 << 20  # bytes that wait in memory to be written together


class AnswerJournal:
    """The answers of one run on its disk; those of a few seconds are written together."""

    def __init__(self, disk: Disk, seconds: float) -> None:
        self._log, self._seconds = RecordLog(disk, ANSWERS), seconds
        self._lock = Lock()  # several devices may train at a time
        self._known: dict[str, PlacedRecord] = {}
        self._waiting: dict[str, Record] = {}
        self._bytes, self._written_at, self._full = 0, time.monotonic(), False
        if disk.size(ANSWERS) is not None:
            self._read()

    @property
    def holds_some(self) -> bool:
        """Whether there were answers when this process began."""
        return bool(self._known)

    def find(self, key: str) -> WorkResult | None:
        """The answer to this order, if it was given before."""
        with self._lock:
            placed = self._known.get(key)
        return None if placed is None else _done(placed.note, bytes(self._log.body(placed)))

    def add(self, key: str, done: WorkResult) -> None:
        """It will be on the disk in a while."""
        kept = {name: np.asarray(array, order="C") for name, array in done.kept.items()}
        arrays = [(name, array.dtype.str, array.shape) for name, array in kept.items()]
        note = {
            "key": key,
            "pace": done.seconds_per_step,
            "steps": done.steps,
            "frame": len(done.frame),
            "kept": arrays,
        }
        body = b"".join((done.frame, *(array.tobytes() for array in kept.values())))
        with self._lock:
            if self._full:
                return
            self._waiting[key] = Record(note, body)
            self._bytes += len(body)
            if self._bytes >= WAITING or time.monotonic() - self._written_at >= self._seconds:
                self._write()

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        records, self._waiting, self._bytes = tuple(self._waiting.values()), {}, 0
        self._written_at = time.monotonic()
        if not records or self._full:
            return
        try:
            self._log.append(*records)
            self._full = self._log.end >= MOST
        except StoreError as error:  # the run itself needs none of it
            log.warning("answers are not kept any more, after an interruption they are trained again: %s", error)
            self._full = True

    def _read(self) -> None:
        try:
            self._known = {placed.note["key"]: placed for placed in self._log.read()}
            self._log.recover()
        except StoreError as error:
            log.warning("what devices had answered is trained again: %s", error)
            self._log.disk.remove(ANSWERS)
            self._known, self._log = {}, RecordLog(self._log.disk, ANSWERS)


class JournalledEngine:
    """An engine that trains what is not in the journal."""

    def __init__(self, engine: Engine, journal: AnswerJournal) -> None:
        self._engine, self._journal, self.parallel = engine, journal, engine.parallel

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        return [self._answer(model_ref, order) for order in orders]  # the emulator has one at a time

    def _answer(self, model_ref: ModelRef, order: DeviceOrder) -> WorkResult:
        if self._journal.holds_some and (known := self._journal.find(_key(model_ref, order))) is not None:
            return known
        began = time.perf_counter()
        (done,) = self._engine.train(model_ref, [order])
        took = time.perf_counter() - began
        if len(done.frame) + sum(array.nbytes for array in done.kept.values()) <= took * WORTH:
            self._journal.add(_key(model_ref, order), done)
        return done

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        return self._engine.results(orders)


@contextmanager
def journalled(engine: Engine, disk: Disk, seconds: float) -> Iterator[Engine]:
    """The engine, with the journal on this disk."""
    journal = AnswerJournal(disk, seconds)
    try:
        yield JournalledEngine(engine, journal)
    finally:
        journal.close()


def _key(model_ref: ModelRef, order: DeviceOrder) -> str:
    """All that an answer depends on, beside the run itself; the id of a model is its hash."""
    task, hash = order.task, blake3()
    words = model_ref, order.device, order.pace, task.round, task.budget, task.purpose, task.evaluates
    hash.update(repr(words).encode())
    previous = {} if task.previous is None else {"previous": task.previous}
    for table in (task.extra, previous, order.state):
        _add(hash, table)
    return hash.hexdigest(16)


def _add(hash: blake3, table: Mapping[str, Array]) -> None:
    for name in sorted(table):
        array = np.ascontiguousarray(table[name])
        hash.update(repr((name, array.dtype.str, array.shape)).encode())
        hash.update(array.reshape(-1).view(np.uint8).data)


def _done(note: Mapping[str, Any], body: bytes) -> WorkResult:
    kept: State = {}
    at = note["frame"]
    for name, kind, shape in note["kept"]:
        dtype = np.dtype(kind)
        # In memory of its own, as when it was trained: numpy adds up numbers in another order that stand elsewhere.
        kept[name] = np.frombuffer(body, dtype, prod(shape), at).reshape(shape).copy()
        at += kept[name].nbytes
    return WorkResult(body[: note["frame"]], kept, note["pace"], note["steps"])
