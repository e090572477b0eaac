"""Arrays that two processes read and none can change: in memory that has no name and is sealed."""

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from edgefl.base.vector import Array

ALIGNED = 64
SEALED = 0x1 | 0x2 | 0x4 | 0x8  # no more seals, never smaller, never larger, never written again
ADD_SEALS = 1033

Described: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]  # kind of number and shape of each array, in order


@dataclass(frozen=True, slots=True)
class Shared:
    """Arrays in shared memory; a process with the handle and the description has the arrays."""

    handle: int
    described: Described
    arrays: tuple[Array, ...]

    @property
    def size(self) -> int:
        """Bytes of memory behind the handle."""
        return os.fstat(self.handle).st_size

    def close(self) -> None:
        """Close the handle; the arrays stay as long as they are used."""
        os.close(self.handle)


def share(arrays: Sequence[Array]) -> Shared:
    """The same arrays, in shared memory."""
    handle = os.memfd_create("samples", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    described = tuple((array.dtype.str, tuple(array.shape)) for array in arrays)
    end = 0
    for array, place in zip(arrays, _places(described), strict=True):
        plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        at = place
        while at < place + len(plain):
            at += os.pwrite(handle, plain[at - place :], at)
        end = place + len(plain)
    os.ftruncate(handle, max(end, 1))  # nothing at all cannot be mapped
    fcntl.fcntl(handle, ADD_SEALS, SEALED)
    return Shared(handle, described, mapped(handle, described))


def mapped(handle: int, described: Described) -> tuple[Array, ...]:
    """The arrays behind a handle, to be read."""
    memory = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    places = _places(described)
    return tuple(
        np.frombuffer(memory, kind, prod(shape), place).reshape(shape) if prod(shape) else np.empty(shape, kind)
        for (kind, shape), place in zip(described, places, strict=True)
    )


def _places(described: Described) -> list[int]:
    """Where each array begins."""
    places, at = [], 0
    for kind, shape in described:
        places.append(at)
        size = np.dtype(kind).itemsize * prod(shape)
        at += size + -size % ALIGNED
    return places
