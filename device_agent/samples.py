"""The device's samples from task to task: what was added since the last one is used by the next.

Files are read again when the size or the time of one has changed, a function is called again before every task. New
data that cannot be used are said, and the old ones stay. The parts of a trial never change.

What is held back is never trained on: models are evaluated on it, where a run asks for that. A trial's part holds
nothing back of its own; there a task says which share of it is set aside.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError

log = logging.getLogger(__name__)

Parts: TypeAlias = tuple[Dataset, Dataset | None]  # to train on, and held back


class Samples:
    """What a device holds. `read` gives the newest; `version` tells, without reading, whether they are still `seen`."""

    def __init__(
        self,
        data: Dataset,
        held_back: Dataset | None = None,
        read: Callable[[], Parts] | None = None,
        version: Callable[[], object] = lambda: None,
        seen: object = None,
        *,
        describes: bool = True,
    ) -> None:
        self.data, self.held_back = data, held_back
        self.describes = describes  # whether sums over them may be told
        self._read, self._version, self._seen = read, version, seen
        self._complaint = ""

    def current(self, fitted: Callable[[Dataset], Dataset]) -> Dataset:
        """The newest data that fit: `fitted` makes them what a task needs, or raises a ConfigError."""
        try:
            fresh = self._fresh()
            if fresh is not None:
                ready = fitted(fresh[0])
                log.info("data read again samples=%d before=%d", len(fresh[0]), len(self.data))
                (self.data, self.held_back), self._complaint = fresh, ""
                return ready
        except ConfigError as error:
            if self._complaint != str(error):  # the same is said once
                self._complaint = str(error)
                log.warning("new data are not used, the old ones stay samples=%d why=%s", len(self.data), error)
        return fitted(self.data)

    def changed(self) -> bool:
        """Whether there may be something new: it has to be read to know."""
        if self._read is None:
            return False
        try:
            version = self._version()
        except ConfigError:  # it cannot be read any more, which `current` will say
            return True
        return version is None or version != self._seen

    def _fresh(self) -> Parts | None:
        """What is new, if anything is."""
        if self._read is None:
            return None
        version = self._version()  # before reading: what changes meanwhile is new again the next time
        if version is not None and version == self._seen:
            return None
        self._seen = version
        fresh = self._read()
        return None if _same(fresh[0], self.data) else fresh


def _same(a: Dataset, b: Dataset) -> bool:
    one, other = ((d.classes, d.class_names, d.target_names, d.x.shape, d.x.dtype, d.form) for d in (a, b))
    return one == other and np.array_equal(a.y, b.y) and np.array_equal(a.x, b.x)
