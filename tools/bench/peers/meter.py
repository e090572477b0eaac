"""Processes and their children: who they are, and their memory."""

from collections.abc import Iterable

import psutil


def family(pids: Iterable[int]) -> set[int]:
    """Return these processes and all that they have started."""
    everybody = set(pids)
    for pid in list(everybody):
        everybody |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return everybody


def resident_mb(pid: int) -> float:
    """Memory of a process and its children, with what they share counted once.

    For a single process that is its resident set; of several, shared is the largest part that one of them shares.
    """
    own, shared = 0, 0
    for member in family([pid]):
        memory = psutil.Process(member).memory_full_info()
        own, shared = own + memory.uss, max(shared, memory.rss - memory.uss)
    return (own + shared) / 2**20
