"""What agent and box say to each other, through a socket that both were born with.

    length of the header 4 | header (msgpack): what is said, and the sizes of the parts | the parts, as they are

Numbers and names only: nothing that is read here can run code. The agent does not believe what comes out of a box, so
a reader says how much it takes.
"""

import re
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import msgpack
import numpy as np

from edgefl.base.vector import State

HEADER = 1 << 18  # bytes
PLAIN = re.compile(r"[<|](b1|[iu][1248]|f[248]|U\d{1,6})")  # kinds of numbers, and words; nothing else is an array here
_LENGTH = struct.Struct("<I")

Part: TypeAlias = bytes | bytearray | memoryview


class ChannelClosed(Exception):  # noqa: N818 - it is not an error here
    """The other end is closed, or sends what cannot be understood."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something that was said (Any: names, numbers and texts, each reader knows which)."""

    about: dict[str, Any]
    parts: list[bytearray]
    handle: int | None = None  # an open file that came with it


class Channel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, about: Mapping[str, Any], parts: Sequence[Part] = (), handle: int | None = None) -> None:
        """Say something; a handle given along is open at the other end too."""
        header = msgpack.packb({"about": dict(about), "sizes": [len(memoryview(part).cast("B")) for part in parts]})
        try:
            first = _LENGTH.pack(len(header))
            if handle is None:
                self.end.sendall(first)
            else:
                socket.send_fds(self.end, [first], [handle])
            for part in (header, *parts):
                self.end.sendall(part)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, most: int, *, handles: bool = False, until: float | None = None) -> Parcel:
        """Return the next message, of at most `most` bytes; without `handles`, none is taken.

        It must be there whole by `until` (of `time.monotonic`), however slowly it comes; else the socket times out.
        """
        first, handle = self._first(handles, until)
        length = _LENGTH.unpack(first)[0]
        if length > HEADER:
            raise ChannelClosed(f"a header of {length} bytes")
        about, sizes = _header(self._read(length, until))
        if sum(sizes) > most:
            raise ChannelClosed(f"{sum(sizes)} bytes, where {most} would be many")
        return Parcel(about, [self._read(size, until) for size in sizes], handle)

    def dead(self) -> bool:
        """Whether the other end is known to be closed."""
        self.end.settimeout(0)  # the next read sets its own time-out
        try:
            return self.end.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.end.close()

    def _first(self, handles: bool, until: float | None) -> tuple[bytes | bytearray, int | None]:
        if not handles:
            return self._read(_LENGTH.size, until), None
        first, open_files, _, _ = socket.recv_fds(self.end, _LENGTH.size, 1)
        return first + self._read(_LENGTH.size - len(first)), next(iter(open_files), None)

    def _read(self, size: int, until: float | None = None) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            if until is not None:  # a byte now and then would else put the end off for ever
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.end.settimeout(left)
            try:
                more = self.end.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not more:
                raise ChannelClosed("closed")
            at += more
        return data


def _header(data: bytearray) -> tuple[dict[str, Any], list[int]]:
    try:
        header = msgpack.unpackb(data)
        about, sizes = header["about"], header["sizes"]
        if isinstance(about, dict) and all(isinstance(size, int) and size >= 0 for size in sizes):
            return about, sizes
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.exceptions.UnpackException):
        pass
    raise ChannelClosed("a header that cannot be read")


def packed(arrays: State) -> tuple[list[list[Any]], list[memoryview]]:
    """Arrays as what is to be said about them, and their bytes."""
    dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about = [[name, array.dtype.str, list(arrays[name].shape)] for name, array in dense.items()]
    return about, [array.reshape(-1).view(np.uint8).data for array in dense.values()]


def unpacked(about: Sequence[Sequence[Any]], parts: Sequence[bytearray]) -> State:
    """The arrays again."""
    arrays: State = {}
    try:
        for (name, kind, shape), part in zip(about, parts, strict=True):
            if not PLAIN.fullmatch(kind) or np.dtype(kind).itemsize * prod(shape) != len(part):
                raise ValueError(kind)
            if "U" in kind and np.frombuffer(part, "<u4").max(initial=0) > sys.maxunicode:
                raise ValueError("a word of no characters")
            arrays[str(name)] = np.frombuffer(part, kind).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise ChannelClosed(f"an array that cannot be read: {error}") from None
    return arrays


def pair() -> tuple[Channel, socket.socket]:
    """Our end, and the one to be given away."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
