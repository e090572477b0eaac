"""A folder for as long as a process lives; if that is killed, the next one of its kind clears the folder away.

Its owner holds a lock in it, which the kernel frees however the owner ends. Who clears away takes the lock first, so
a folder whose owner lives is never touched; nor is one of another user.
"""

import os
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from edgefl.system import portable

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
            _delete(self.path, self._lock)
            self._lock = None


def clear(prefix: str, place: str | None = None) -> None:
    """Delete what those of ours have left who were killed."""
    for folder in Path(place or tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is gone meanwhile, or its owner lives, or it has none that we know of
            about = folder.lstat()
            if not portable.is_our_folder(about):
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | portable.NO_LINK)
            try:
                portable.lock(lock, wait=False)
            except OSError:
                os.close(lock)
                continue
            _delete(folder, lock)


def _delete(folder: Path, lock: int) -> None:
    """Delete the folder whose lock this is, then give up the lock: before, where open files cannot be deleted."""
    if sys.platform == "win32":
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(prefix: str, place: str | None) -> tuple[Path, int | None]:
    """A new folder and its lock; one that was cleaned up as a leftover, before it was locked, is made again."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        portable.lock(lock)
        if (path / LOCK).exists():
            return path, lock
        os.close(lock)
