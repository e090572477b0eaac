"""Less resident memory for a process that stays for months on a small device.

Both functions ask Linux and its C library for something that changes no result; where that cannot be had, nothing
happens.
"""

import ctypes
from pathlib import Path
from typing import TextIO

M_ARENA_MAX = -8  # of glibc's malloc.h
MADV_DONTNEED = 4  # of the kernel's mman.h, the same on every architecture that we run on
MAPS = Path("/proc/self/maps")
_maps: TextIO | None = None


def one_heap() -> None:
    """From here on new threads share one heap. glibc gives each its own, and none gives back what it once had."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def open_maps() -> None:
    """For a process that will soon be able to open nothing: `release_code` goes on working."""
    global _maps  # noqa: PLW0603 - of the process, as its memory is
    if MAPS.exists():
        _maps = MAPS.open(encoding="utf-8", errors="replace")


def release_code() -> int:
    """Let go of the pages of code that this process has mapped; gives back how many bytes of code there are.

    Loading libraries and setting them up walks through far more code than is ever used again. The kernel keeps the
    pages in its cache of files as long as it likes, and maps again what does run.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not MAPS.exists():
        return 0
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    released = 0
    for line in _mapped():
        place, rights, _, _, _, *path = line.split(maxsplit=5)
        if rights == "r-xp" and path and path[0].startswith("/"):  # what may be written, or once was, would be lost
            start, end = (int(address, 16) for address in place.split("-"))
            if madvise(start, end - start, MADV_DONTNEED) == 0:
                released += end - start
    return released


def _mapped() -> list[str]:
    """What this process has mapped, and where."""
    if _maps is None:
        return MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    _maps.seek(0)
    return _maps.read().splitlines()
