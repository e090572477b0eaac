"""What Linux has and another system lacks: locks of files, modes, syncs of contents and of names.

Code that needs one of them calls this module. On Windows files have no modes: who may read a file in a user's own
folder is said by the folder. What only Linux or POSIX can do at all, such as confinement, imports its modules where it
uses them.
"""

import errno
import os
import sys
import time
from pathlib import Path
from stat import S_ISDIR

from edgefl.base.errors import ConfigError

LINUX = sys.platform == "linux"
OURS = 0o600  # mode of a file that only its owner reads
LOCKED_BYTE = 1 << 30  # of a lock on Windows: behind what is written, so that others can read the file
ZEROS = bytes(1 << 20)
AGAIN = 0.05  # seconds between two attempts to lock a file on Windows, which does not tell when it is free
# Windows would change what is written to a file that was opened by `os.open`: it takes it for text.
BINARY = getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def posix_only(command: str) -> None:
    """Raise a ConfigError on Windows: this command needs what only Linux and macOS have."""
    if sys.platform == "win32":
        raise ConfigError(
            f"`{command}` does not work on Windows: run it on Linux, or in WSL."
            " `edgefl simulate`, `compare`, `report` and `status` work here"
        )


def lock(file: int, *, wait: bool = True) -> None:
    """Lock an open file until it is closed; raise BlockingIOError if it is locked and this is not to `wait`."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - only Windows has it

        while True:
            os.lseek(file, LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            except PermissionError:
                if not wait:
                    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK)) from None
                time.sleep(AGAIN)
            else:
                return
    else:
        import fcntl  # noqa: PLC0415 - Windows has none

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def memory_size() -> int:
    """Return how many bytes of memory this machine has."""
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415 - only Windows needs it

        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its own size comes first, the machine's memory second
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return status[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def close_to_others(file: int) -> None:
    """Let only its owner read an open file, whatever the umask."""
    if sys.platform != "win32":
        os.fchmod(file, OURS)


def is_our_folder(about: os.stat_result) -> bool:
    """Return whether this is a folder of the user whose process this is."""
    return S_ISDIR(about.st_mode) and (sys.platform == "win32" or about.st_uid == os.geteuid())


def sync_contents(file: int) -> None:
    """After this returns, what was written to an open file survives a power cut; its times need not."""
    if sys.platform == "linux":
        os.fdatasync(file)
    else:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """After this returns, the names in a folder survive a power cut. Windows has no such call."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reserve(file: int, size: int) -> None:
    """Make an open file this number of bytes long; a full disk is an error here, and no signal later."""
    if sys.platform == "linux":
        os.posix_fallocate(file, 0, size)
    else:
        for start in range(0, size, len(ZEROS)):
            os.write(file, ZEROS[: size - start])


def write_parts(file: int, parts: list[memoryview]) -> int:
    """Write the beginning of these parts to an open file; return how many bytes were written."""
    if sys.platform == "win32":
        return os.write(file, parts[0])
    return os.writev(file, parts)
