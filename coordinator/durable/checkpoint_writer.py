"""Checkpoints on their way to the disk, one after another, while devices already work on the model.

Devices need not wait for the disk. The answers behind a model are in the journal, so a coordinator that is killed
before it has written the checkpoint makes the same model again (recovery.py). Only the last model of a run is
announced after it is saved. Checkpoints are written in the order of rounds, also after a disk was full: each needs to
know which model was the best before.

Where rounds take a moment, not each of their models is saved: one that follows another within a second is put off, and
the next that is saved stands for it. One whose round has filled a segment of the journal is never put off: what was
merged since is in the segments that are kept.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgefl.base.errors import StoreError
from edgefl.job.run.job import RunState
from edgefl.system.background import Put, Work

APART = 1.0  # seconds from one checkpoint to the next, if the journal keeps what they are made of


@dataclass(frozen=True, slots=True)
class Stuck:
    """It cannot be written yet; this is what is left to do."""

    reason: str
    work: Work


@dataclass(frozen=True, slots=True)
class Unstuck:
    """What could not be written is on disk now."""


@dataclass(slots=True)
class Saving:
    """Of one run; used by its background alone."""

    pending: deque[tuple[Callable[[], object], Any]] = field(default_factory=deque)
    stuck: bool = False
    passed: tuple[RunState, ...] = ()  # by those that were put off: one of them may have been the best
    _put_off: Callable[[], object] | None = None  # the newest of them
    _last: float | None = None  # when one was added

    def add(self, save: Callable[[], object], then: Any = None, now: float | None = None) -> None:
        """One more to be saved, and what is to be told then; it stands for those that were put off."""
        self.pending.append((save, then))
        self.passed, self._put_off, self._last = (), None, now

    def soon_after(self, now: float) -> bool:
        """Whether the last one was saved only a moment ago."""
        return self._last is not None and now < self._last + APART

    def put_off(self, save: Callable[[], object], passed: tuple[RunState, ...]) -> None:
        """It need not be saved, if another one follows."""
        best = passed[-1].best_round
        self.passed, self._put_off = tuple(one for one in passed if one.round == best), save

    def finish(self) -> None:
        """None follows: save what there is, as far as the disk has room; else it is made again."""
        if self._put_off:
            self.add(self._put_off)
        self.work(lambda _: None)

    def held_up(self, error: StoreError, work: Work) -> Stuck:
        """The disk has no room for this work; that it has again is told when everything is saved."""
        self.stuck = True
        return Stuck(str(error), work)

    def work(self, put: Put) -> None:
        """Save all that wait; what the disk has no room for is tried again later."""
        while self.pending:
            save, then = self.pending[0]
            try:
                save()
            except StoreError as error:
                put(self.held_up(error, self.work))
                return
            self.pending.popleft()
            if then is not None:
                put(then)
        if self.stuck:
            self.stuck = False
            put(Unstuck())
