"""A folder has one owner at a time; the kernel frees it when that process ends, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefl.errors import ConfigError, StoreError
from edgefl.system.store import OURS, make_folder, make_private


@contextmanager
def own(folder: Path, *, private: bool = True, remedy: str = "stop it, or choose another folder") -> Iterator[None]:
    """Own the folder while the block runs; if it is private, nobody else can read it."""
    try:
        if private:
            make_private(folder)
        else:
            make_folder(folder, private=False)
        file = (folder / "lock").open("a+")
        if private:
            os.fchmod(file.fileno(), OURS)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be used ({error.strerror}); choose another folder") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another one"
            raise ConfigError(f"{folder} is in use by process {owner}: {remedy}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
