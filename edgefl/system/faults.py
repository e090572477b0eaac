"""Faults on demand, for the tests that prove nothing is lost: die, or run out of disk, at the n-th write.

`EDGEFL_FAULT=kill:17` ends the process with SIGKILL right before its 17th durable write; `EDGEFL_FAULT=full:17` lets
that write, and the two after it, fail as on a full disk. Without the variable this is one comparison per write.
"""

import errno
import os
import signal

FAULT = "EDGEFL_FAULT"
FULL_WRITES = 3  # how many writes in a row find the disk full

_kind, _, _number = os.environ.get(FAULT, "").partition(":")
_writes = 0


def before_write() -> None:
    """Called by everything that is about to make something durable."""
    if not _kind:
        return
    global _writes  # noqa: PLW0603 - one count for the whole process is the point
    _writes += 1
    if _kind == "kill" and _writes == int(_number):
        os.kill(os.getpid(), signal.SIGKILL)
    if _kind == "full" and 0 <= _writes - int(_number) < FULL_WRITES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
