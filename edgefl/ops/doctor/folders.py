"""What is on disk: a state folder that can be written and holds what is written, room in it, and private keys."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgefl.ops.doctor.finding import Finding, ok, warning, wrong
from edgefl.system.portable import sync_folder

FULL = {errno.ENOSPC, errno.EDQUOT}
FREE = "free some space"
ENOUGH, LITTLE = 500 << 20, 50 << 20  # bytes: for a few models and a journal; for hardly anything


def folder(path: Path, key: str) -> Iterator[Finding]:
    """Whether the state folder `path`, named by `key`, can be written durably, and how much room it has."""
    path = path.expanduser()
    try:
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        handle, name = tempfile.mkstemp(prefix=".edgefl-doctor-", dir=there)
        try:
            os.write(handle, bytes(4096))
            os.fsync(handle)
            sync_folder(there)
        finally:
            os.close(handle)
            Path(name).unlink()
    except OSError as error:
        if error.errno in FULL:
            yield wrong("disk", f"the disk is full: {path} cannot be written", f"{FREE}, or choose another {key}")
        else:
            remedy = f"choose another {key}, or let this user write there"
            yield wrong("folder", f"{path} cannot be written ({error.strerror})", remedy)
        return
    yield ok("folder", f"{path} can be written{'' if there == path else ' (it will be made)'}")
    yield room(path, shutil.disk_usage(there).free)


def room(path: Path, free: int) -> Finding:
    text = f"{free >> 20} MB free for {path}"
    if free >= ENOUGH:
        return ok("disk", text)
    return (warning if free >= LITTLE else wrong)("disk", text, f"{FREE}: a full disk pauses the run")


def key_file(path: Path, key: str) -> Finding:
    """Check that the private key `path`, named by `key`, is there and readable by its owner alone."""
    try:
        mode = path.expanduser().stat().st_mode & 0o777
        path.expanduser().open("rb").close()
    except OSError as error:
        return wrong("key", f"{key} {path} cannot be read ({error.strerror})", f"correct {key}, or its owner")
    if mode & 0o077:
        return wrong("key", f"{key} {path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return ok("key", f"{path}, mode {mode:o}")
