"""The device's samples from task to task: what was added since the last one is used by the next.

Files are read again when the size or the time of one has changed, a function is called again before every task. The
parts of a trial never change. Between tasks files are only looked at: what can be read waits for the next task.

    usable   ── new data cannot be read, or do not fit ─▶ stale    trains on the samples it has; `trouble` says why
    stale    ── they can be read again ─▶ usable
    missing  ── they can be read for the first time ─▶ usable      cannot train; `trouble` says why

Broken data are a state and never an exception that ends the agent: a logger may have written half a row, a disk may be
mounted late. `trouble` is announced to coordinators, so it quotes no values of cells.

What is held back is never trained on: models are evaluated on it, where a run asks for that. A trial's part holds
nothing back of its own; there a task says which share of it is set aside. Models are evaluated on the `counted` ones
of the held-back rows. Some of the training rows may be `left_out` of sums that leave the device (counted_rows.py).
"""

import logging
import time
from collections.abc import Callable
from threading import Thread
from typing import TypeAlias, TypeVar

import numpy as np

from device_agent.decide.failure_reason import FailureReason
from edgefl.base.errors import IN_THE_LOG, ConfigError, EdgeflError, coded
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import LeftOut

log = logging.getLogger(__name__)

T = TypeVar("T")
Parts: TypeAlias = tuple[Dataset, Dataset | None]  # to train on, and held back
FIRST = "first data"  # the thread that reads them
PATIENCE = 30.0  # seconds that this may hold up an agent that starts
NONE = Dataset(np.empty((0, 1), np.float32), np.empty(0, np.int64), 0)


class Samples:
    """What a device holds. `read` gives the newest; `version` tells, without reading, whether they are still `seen`."""

    def __init__(
        self,
        data: Dataset,
        held_back: Dataset | None = None,
        read: Callable[[], Parts] | None = None,
        version: Callable[[], object] | None = None,
        seen: object = None,
        *,
        describes: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.data, self.held_back = data, held_back
        self.counted = held_back  # those held back on which models are evaluated
        self._choose: Callable[[Dataset], Dataset] = lambda rows: rows
        self._leave_out: Callable[[Dataset], LeftOut] | None = None
        self._left_out: LeftOut = ()  # of the data of `_left_out_of`
        self._left_out_of = -1
        self.describes = describes  # whether sums over them may be told
        self.trouble = ""  # why the newest data cannot be used, in words that may travel; empty: they can
        self.misfit = False  # whether that is because they do not fit what the last task asked for
        self.misfits = 0  # how often that was so
        self.read_at = wall()  # when `data` were read: seconds since 1970
        self._read, self._version, self._wall = read, version or (lambda: None), wall
        self._seen = seen  # the version that was read last
        self._waits = False  # whether that can be read, and no task has taken it yet
        self._has_version, self._keeps_reading = version is not None, True
        self._taken = 0  # how often they were read
        self._complaint = ""

    @classmethod
    def opened(
        cls,
        read: Callable[[], Parts],
        version: Callable[[], object] | None = None,
        *,
        describes: bool = True,
        changes: bool = True,
        wall: Callable[[], float] = time.time,
        patience: float = PATIENCE,
    ) -> "Samples":
        """Return what can be read now, or `missing` samples; unless it `changes`, it is read until it is usable.

        A mount may hang, and a large file may take minutes: reading it goes on, and the agent connects meanwhile.
        """
        samples = cls(NONE, None, read, version, describes=describes, wall=wall)
        samples._keeps_reading = changes
        samples.trouble = told = f"reading them has not ended after {patience:g} s"  # until it has
        reading = Thread(target=samples._take_first, name=FIRST, daemon=True)
        reading.start()
        reading.join(patience)
        if reading.is_alive():
            samples._complaint = told
            log.warning("no usable data yet, this device does not train until there are why=%s", told)
        return samples

    def count_on(self, choose: Callable[[Dataset], Dataset]) -> None:
        """Have models evaluated on the rows that `choose` returns, of all that are held back."""
        self._choose = choose
        self._count()

    @property
    def change(self) -> bool:
        """Whether they may be others later: those of a trial never are."""
        return self._read is not None and self._keeps_reading

    def sum_over(self, leave_out: Callable[[Dataset], LeftOut]) -> None:
        """Have sums that leave the device be over all rows but those that `leave_out` returns."""
        self._leave_out = leave_out

    @property
    def left_out(self) -> LeftOut:
        """Which rows of `data` have no part in sums that leave the device; None: there are no such sums."""
        if self._leave_out is not None and self._left_out_of != self._taken:
            self._left_out, self._left_out_of = self._leave_out(self.data), self._taken
        return self._left_out

    @property
    def missing(self) -> str:
        """Why there is nothing to train on; empty if there is."""
        return "" if len(self.data) else self.trouble

    @property
    def watched(self) -> bool:
        """Whether it is known, without reading, that the data are other ones."""
        return self._read is not None and self._has_version

    def current(self, fitted: Callable[[Dataset], Dataset]) -> Dataset:
        """The newest data that fit: `fitted` makes them what a task needs, or raises a ConfigError."""
        if self.missing:
            raise ConfigError(f"no usable data: {self._complaint}", told=f"no usable data: {self.trouble}")
        try:
            fresh = self._fresh()
        except EdgeflError as error:
            self._complain(error)
            fresh = None
        if fresh is not None and _same(fresh[0], self.data):
            self._usable(len(self.data))
        elif fresh is not None:
            try:
                ready = fitted(fresh[0])
            except EdgeflError as error:
                self._complain(error)
                self.misfit, self.misfits = True, self.misfits + 1
            else:
                log.info("data read again samples=%d before=%d", len(fresh[0]), len(self.data))
                self._take(fresh)
                return ready
        return fitted(self.data)

    def look(self) -> None:
        """Read the data if they have changed since: they can be used again, or cannot be used any more."""
        if self._read is None:
            return
        if self.missing:
            self._take_first()
            return
        try:
            version = _guarded(self._version)
            unchanged = version == self._seen if self._has_version else not self.trouble
            if unchanged:
                return
            self._seen, self._waits = version, False
            fresh = _guarded(self._read)
            self._waits = True
            if fresh[0].shape != self.data.shape:
                raise ConfigError(
                    f"the newest samples have the shape {list(fresh[0].shape)}, those in use {list(self.data.shape)}",
                    free_of_data=True,
                )
        except EdgeflError as error:
            self._complain(error)
        else:
            self._usable(len(fresh[0]))

    def changed(self) -> bool:
        """Whether there may be something new: it has to be read to know."""
        if self._read is None:
            return False
        try:
            version = _guarded(self._version)
        except EdgeflError:  # it cannot be read any more, which `current` will say
            return True
        return version is None or version != self._seen or self._waits

    def _take_first(self) -> None:
        try:
            fresh = self._fresh()
        except EdgeflError as error:
            self._complain(error)
            return
        if fresh is None:
            return
        if self._complaint:
            log.info("there are usable data samples=%d", len(fresh[0]))
        self._take(fresh)
        if not self._keeps_reading:
            self._read = None

    def _take(self, fresh: Parts) -> None:
        (self.data, self.held_back), self.read_at = fresh, self._wall()
        self._taken += 1
        self._count()
        self._mended()

    def _mended(self) -> None:
        self.trouble, self.misfit, self._complaint = "", False, ""

    def _count(self) -> None:
        self.counted = None if self.held_back is None else self._choose(self.held_back)

    def _usable(self, count: int) -> None:
        """Take in that the newest data, of `count` samples, can be used."""
        if self.trouble:
            log.info("the data can be used again samples=%d", count)
        self._mended()

    def _complain(self, error: EdgeflError) -> None:
        """Keep in mind why the newest data are not used; the same is logged once."""
        self.misfit = False
        self.trouble, why = error.told, FailureReason(str(error), error.told).logged
        if self._complaint == why:
            return
        self._complaint = why
        if self.missing:
            log.warning("no usable data, this device does not train until there are why=%s", why)
        else:
            log.warning("new data are not used, the old ones stay samples=%d why=%s", len(self.data), why)
        log.debug("reading the data failed", exc_info=error)

    def _fresh(self) -> Parts | None:
        """Return what was read, unless it is known that it has not changed."""
        if self._read is None:
            return None
        version = _guarded(self._version)  # before reading: what changes meanwhile is new again the next time
        if version is not None and version == self._seen and not self._waits:
            return None
        self._seen, self._waits = version, False
        return _guarded(self._read)


def _guarded(read: Callable[[], T]) -> T:
    """Call what reads an operator's data, which may raise anything: a file of any kind, or a function of their own."""
    try:
        return read()
    except EdgeflError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        told = f"{coded(error)}: reading it failed; {IN_THE_LOG}"
        raise ConfigError(f"reading the data ended with a {kind}: {error}", told=told) from error


def _same(a: Dataset, b: Dataset) -> bool:
    one, other = ((d.classes, d.class_names, d.target_names, d.x.shape, d.x.dtype, d.form) for d in (a, b))
    return one == other and np.array_equal(a.y, b.y) and np.array_equal(a.x, b.x)
