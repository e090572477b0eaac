"""A folder for as long as a process lives; if that is killed, the next one of its kind clears the folder away.

Its owner holds a lock in it, which the kernel frees however the owner ends. Who clears away takes the lock first, so
a folder whose owner lives is never touched; nor is one of another user.
"""

import os
import shutil
import stat
import tempfile
from contextlib import AbstractContextManager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

LOCK = "owner.lock"


class Scratch(AbstractContextManager["Scratch"]):
    """A folder of our own among the temporary ones, or in another place, named after what it is for."""

    def __init__(self, prefix: str, place: str | None = None) -> None:
        clear(prefix, place)
        self.path, self._lock = _locked(prefix, place)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete it; twice does no harm."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def clear(prefix: str, place: str | None = None) -> None:
    """Delete what those of ours have left who were killed."""
    for folder in Path(place or tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is gone meanwhile, or its owner lives, or it has none that we know of
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(prefix: str, place: str | None) -> tuple[Path, int | None]:
    """A new folder and its lock; one that somebody took for left behind, before it was locked, is made again."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        flock(lock, LOCK_EX)
        if (path / LOCK).exists():
            return path, lock
        os.close(lock)
