"""The device's samples from task to task: what was added since the last one is used by the next.

A file is read again when its size or its time has changed, a function is called again before every task. New data that
cannot be used are said, and the old ones stay. The parts of a trial never change.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgefl.config.schema import LocalData
from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError
from edgefl.run.local_data import local_data
from edgefl.system.user_files import located

log = logging.getLogger(__name__)

FILES = ("npz", "csv")


class Samples:
    """What a device holds. `read` gives the newest; `version` tells, without reading, whether they are still `seen`."""

    def __init__(
        self,
        data: Dataset,
        read: Callable[[], Dataset] | None = None,
        version: Callable[[], object] = lambda: None,
        seen: object = None,
    ) -> None:
        self.data = data
        self._read, self._version, self._seen = read, version, seen
        self._complaint = ""

    def current(self, fitted: Callable[[Dataset], Dataset]) -> Dataset:
        """The newest data that fit: `fitted` makes them what a task needs, or raises a ConfigError."""
        try:
            fresh = self._fresh()
            if fresh is not None:
                ready = fitted(fresh)
                log.info("data read again samples=%d before=%d", len(fresh), len(self.data))
                self.data, self._complaint = fresh, ""
                return ready
        except ConfigError as error:
            if self._complaint != str(error):  # the same is said once
                self._complaint = str(error)
                log.warning("new data are not used, the old ones stay samples=%d why=%s", len(self.data), error)
        return fitted(self.data)

    def _fresh(self) -> Dataset | None:
        """What is new, if anything is."""
        if self._read is None:
            return None
        version = self._version()  # before reading: what changes meanwhile is new again the next time
        if version is not None and version == self._seen:
            return None
        self._seen = version
        fresh = self._read()
        return None if _same(fresh, self.data) else fresh


def samples_of(settings: LocalData, root: Path | None = None) -> Samples:
    """The samples that an agent file names."""
    kind, colon, rest = settings.source.partition(":")
    if settings.partition is not None or not colon:
        return Samples(local_data(settings, root))
    if kind not in FILES:  # called before every task: not worth a line each time
        return Samples(local_data(settings, root), lambda: local_data(settings, root, log_level=logging.DEBUG))
    path = located(Path(rest))
    seen = file_version(path)
    return Samples(local_data(settings, root), lambda: local_data(settings, root), lambda: file_version(path), seen)


def file_version(path: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing at all while there is none."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino


def _same(a: Dataset, b: Dataset) -> bool:
    if (a.classes, a.class_names, a.x.shape, a.x.dtype) != (b.classes, b.class_names, b.x.shape, b.x.dtype):
        return False
    return np.array_equal(a.y, b.y) and np.array_equal(a.x, b.x)
