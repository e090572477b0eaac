"""A folder has one owner at a time; the kernel frees it when that process ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from edgefl.base.errors import ConfigError, StoreError
from edgefl.system.portable import close_to_others, lock
from edgefl.system.store import make_folder, make_private

CLOCKS = 2.0  # seconds by which the birth of a process may seem later than what it did


@contextmanager
def own(folder: Path, *, private: bool = True, remedy: str = "stop it, or choose another folder") -> Iterator[None]:
    """Own the folder while the block runs; if it is private, no other user can read it."""
    try:
        if private:
            make_private(folder)
        else:
            make_folder(folder, private=False)
        file = (folder / "lock").open("a+")
        if private:
            close_to_others(file.fileno())
    except OSError as error:
        raise StoreError(f"{folder}: cannot be used ({error.strerror}); choose another folder") from None
    with file:
        try:
            lock(file.fileno(), wait=False)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another one"
            raise ConfigError(f"{folder} is in use by process {owner}: {remedy}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def owner(folder: Path) -> int | None:
    """The process that owns the folder, or None. Looking takes no lock, so it keeps no process out."""
    import psutil  # noqa: PLC0415 - an agent locks its folder too, and has no use for it

    try:
        number, since = int((folder / "lock").read_text().strip() or 0), (folder / "lock").stat().st_mtime
        born = psutil.Process(number).create_time() if number > 0 else inf
    except (OSError, ValueError, psutil.Error):
        return None
    return number if born <= since + CLOCKS else None  # a younger process only reuses the number of one that has ended
