"""What simulated devices keep between rounds: the first in memory, and beyond a limit the rest in a scratch file.

A fleet of 100,000 that each keep a model's worth of numbers (SCAFFOLD, GradMA, ...) needs more than any memory. A
state lies in one piece of the file, and a new one of the same size takes its place. Nothing of this outlives the
simulation.
"""

import errno
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import prod
from types import TracebackType
from typing import BinaryIO, TypeAlias

import numpy as np

from edgefl.base.errors import StoreError
from edgefl.base.vector import Array, State
from edgefl.system.scratch import Scratch

PREFIX = "edgefl-states-"
ALIGNED = 64  # bytes: where an array begins


Arrays: TypeAlias = tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]  # names, types and shapes


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a state lies in the file, and which arrays it has."""

    start: int
    size: int
    arrays: Arrays


class DeviceStates(AbstractContextManager["DeviceStates"]):
    """The state of every device by its name; of one that has kept nothing, `{}`."""

    def __init__(self, memory: int, place: str | None = None) -> None:
        """`memory` is how many bytes stay here; `place` a folder for the rest, unless it is that of temporary files."""
        self._memory, self._place = memory, place
        self._here: dict[str, State] = {}
        self._there: dict[str, Piece] = {}
        self._used = 0  # bytes of `_here`
        self._end = 0  # of the file
        self._free: dict[int, list[int]] = {}  # places in the file, by size
        self._kinds: dict[Arrays, Arrays] = {}  # each once, however many devices have it
        self._scratch: Scratch | None = None
        self._file: BinaryIO | None = None

    def __getitem__(self, device: str) -> State:
        if device in self._here:
            return self._here[device]
        piece = self._there.get(device)
        return {} if piece is None else self._read(piece)

    def keep(self, device: str, state: State) -> None:
        """From now on this is what the device has."""
        self._forget(device)
        if not state:
            return
        size = _size(state)
        if self._used + size <= self._memory:
            self._here[device], self._used = state, self._used + size
        else:
            self._there[device] = self._written(state, size)

    @property
    def on_disk(self) -> int:
        """How many bytes the file has."""
        return self._end

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take is not needed any more
                self._file.close()
        if self._scratch is not None:
            self._scratch.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self, device: str) -> None:
        if device in self._here:
            self._used -= _size(self._here.pop(device))
        if (piece := self._there.pop(device, None)) is not None:
            self._free.setdefault(piece.size, []).append(piece.start)

    def _written(self, state: State, size: int) -> Piece:
        free = self._free.get(size)
        start = free.pop() if free else self._end
        self._end = max(self._end, start + size)
        file = self._opened()
        try:
            file.seek(start)
            for array in state.values():
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
                file.write(bytes(-array.nbytes % ALIGNED))
            file.flush()
        except OSError as error:
            why = "it is full" if error.errno == errno.ENOSPC else error.strerror
            raise StoreError(
                f"{file.name}: the states of simulated devices cannot be written ({why});"
                " set TMPDIR to a folder on a larger disk, or raise compute.state_mb"
            ) from None
        arrays = tuple((name, array.dtype, array.shape) for name, array in state.items())
        return Piece(start, size, self._kinds.setdefault(arrays, arrays))

    def _read(self, piece: Piece) -> State:
        memory, file, at = np.empty(piece.size, np.uint8), self._opened(), 0
        file.seek(piece.start)
        if file.readinto(memory.data) != piece.size:  # type: ignore[attr-defined] # typeshed's BinaryIO lacks it
            raise StoreError(f"{file.name}: the states of simulated devices were cut off by another process")
        state: State = {}
        for name, dtype, shape in piece.arrays:
            size = prod(shape) * dtype.itemsize
            state[name] = memory[at : at + size].view(dtype).reshape(shape)
            at += _padded(size)
        return state

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._scratch = Scratch(PREFIX, self._place)
            self._file = (self._scratch.path / "states").open("w+b")
        return self._file


def _size(state: Mapping[str, Array]) -> int:
    return sum(_padded(array.nbytes) for array in state.values())


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
