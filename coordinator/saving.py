"""Checkpoints on their way to the disk, one after another, while devices already work on the model.

Devices need not wait for the disk: what a model was made of is in the journal, so whoever is killed before its
checkpoint is there makes the same one again (recovery.py). Only the last model of a run is told of when it is saved.
The order of rounds is kept, also after a disk was full: which model was the best is known from one to the next.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgefl.errors import StoreError
from edgefl.system.background import Put, Work


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

    def add(self, save: Callable[[], object], then: Any = None) -> None:
        """One more to be saved, and what is to be told then."""
        self.pending.append((save, then))

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
