"""The memory of a process that stays: little of it on a small device, and not asked for again and again.

All of this asks Linux and its C library for something that changes no result; where that cannot be had, nothing
happens.
"""

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
LARGEST = 32 << 20  # bytes of the largest piece that glibc takes from a heap
MADV_DONTNEED = 4  # of the kernel's mman.h, the same on every architecture that we run on
MAPS = Path("/proc/self/smaps")
# Of a file, for reading or running, no page of it a copy of its own. One pattern for thousands of lines: to take them
# apart one by one was a twentieth of what it takes to start training.
UNWRITTEN = re.compile(
    rb"^(\w+)-(\w+) r-[x-]p \S+ \S+ \S+ +/.*\n(?:\w+: .*\n)*?Anonymous: +0 kB\n(?:\w+: .*\n)*?Swap: +0 kB$",
    re.MULTILINE,
)
PIECE = 1 << 16  # bytes that are read at a time
LAST = b"\nVmFlags:"  # what is told of a mapping ends with it
_maps: BinaryIO | None = None


def one_heap(kept: int = 0) -> None:
    """From here on new threads share one heap. glibc gives each its own, and none gives back what it once had.

    This number of freed bytes is kept for what comes next. The kernel, which large pieces come from otherwise,
    clears them page by page: to receive ten answers of 4 MB took a coordinator 45 ms more that way.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(M_ARENA_MAX, 1)
    if kept:
        mallopt(M_MMAP_THRESHOLD, min(kept, LARGEST))
        mallopt(M_TRIM_THRESHOLD, kept)


@contextmanager
def freed_kept(kept: int) -> Iterator[None]:
    """Keep this number of freed bytes with the process until the block ends, and give them back then.

    The answers of a simulated round are freed together; without this they come from the kernel anew in the next one.
    """
    library = ctypes.CDLL(None)
    mallopt, trim = getattr(library, "mallopt", None), getattr(library, "malloc_trim", None)
    if mallopt is None or trim is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, kept)
    try:
        yield
    finally:
        mallopt(M_TRIM_THRESHOLD, 2 * LARGEST)  # what glibc itself comes to where pieces are that large
        trim(0)


def open_maps() -> None:
    """For a process that will soon be able to open nothing: `release_code` goes on working."""
    global _maps  # noqa: PLW0603 - of the process, as its memory is
    if MAPS.exists():
        _maps = MAPS.open("rb", buffering=0)


def release_code() -> int:
    """Let go of what this process has mapped of its libraries and never wrote to; gives back how many bytes that is.

    Loading libraries and setting them up walks through far more code and tables than are ever used again. The kernel
    keeps the pages in its cache of files as long as it likes, and maps again what is used.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not MAPS.exists():
        return 0
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    released = 0
    for start, end in _unwritten():
        if madvise(start, end - start, MADV_DONTNEED) == 0:
            released += end - start
    return released


def _unwritten() -> Iterator[tuple[int, int]]:
    """Return where files are mapped that no process can write to or has written to: only these can be dropped."""
    for mappings in _mapped():
        for mapping in UNWRITTEN.finditer(mappings):
            yield int(mapping[1], 16), int(mapping[2], 16)


def _mapped() -> Iterator[bytes]:
    """What this process has mapped, and where: some whole mappings at a time.

    All together is half a megabyte, for which the heap would grow each time and never shrink.
    """
    maps = MAPS.open("rb", buffering=0) if _maps is None else _maps
    try:
        maps.seek(0)
        rest = b""
        while more := maps.read(PIECE):
            text = rest + more
            end = text.rfind(LAST) + 1
            yield text[:end]
            rest = text[end:]
    finally:
        if maps is not _maps:
            maps.close()
