"""Matrix products of numpy on one thread while we compute: where BLAS cuts a sum depends on how many threads it has.

The setting is one for the whole process, so the first to enter makes it, and the last to leave takes it back.
`threadpoolctl` comes with the coordinator's packages. A device has neither it nor products that are large enough to be
cut, and the command line gives it one thread from the start (`cli.entry`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np  # noqa: F401 - whose BLAS must be loaded before we can speak to it

_lock = Lock()
_computing = 0
_before: list[tuple[Any, int]] = []  # libraries that had more threads, and how many (Any: threadpoolctl has no types)


@contextmanager
def one_thread() -> Iterator[None]:
    """Numpy's matrix products inside the block give the same bits on every number of cores, in whatever thread."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _computing  # noqa: PLW0603 - of the process, as the setting is
    with _lock:
        _computing += 1
        if _computing == 1 and (loaded := libraries()) is not None:
            for library in loaded.lib_controllers:
                if (threads := library.get_num_threads()) != 1:
                    _before.append((library, threads))
                    library.set_num_threads(1)


def _leave() -> None:
    global _computing  # noqa: PLW0603 - as above
    with _lock:
        _computing -= 1
        if _computing == 0:
            for library, threads in _before:
                library.set_num_threads(threads)
            _before.clear()


@cache
def libraries() -> Any:
    """The BLAS libraries of this process (Any: no types); to find them takes a millisecond, so once."""
    if not find_spec("threadpoolctl"):
        return None
    return import_module("threadpoolctl").ThreadpoolController().select(user_api="blas")
