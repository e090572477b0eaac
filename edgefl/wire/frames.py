"""A frame: a small header that describes the message, and a body of raw bytes.

  magic 4 | version 1 | flags 1 | header length 4 | body length 8 | header (msgpack) | zeros | body

Lengths are the plain sizes, little-endian; the body begins at a multiple of 64, so that numbers in it are aligned;
flag 1 says that it is zstd-compressed, flag 2 that it is then sealed (sealing.py). The header is read first, and the
body when its size limit is known: every limit is checked before memory is allocated. Nothing here can run code: no
pickle, no numpy loader.
"""

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack

from edgefl.base.errors import WireError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module, for the Pythons that do not have it yet

MAGIC = b"EFLF"
VERSION = 1
HEADER_LIMIT = 1 << 18  # bytes; as objects they are up to sixty times as many
COMPRESSED, SEALED = 1, 2
ALIGNED = 64
PIECE = 1 << 17  # bytes that go into the decompressor, or come out, at a time
WINDOW = 23  # 2^23 bytes is as far as a compressed body may look back; ours look back 2^19

SEAL = 48  # bytes that a seal adds

_PREFIX = struct.Struct("<4sBBIQ")

Unseal: TypeAlias = Callable[[memoryview, memoryview], bytes]  # all before the body, and the sealed body


@dataclass(frozen=True, slots=True)
class Frame:
    """The header of a frame and its opened body."""

    header: dict[str, Any]
    body: memoryview


def pack(header: Mapping[str, Any], parts: Sequence[bytes | memoryview] = (), *, compress: bool = False) -> bytes:
    """Return the bytes of a frame; with `compress` the body is compressed if that saves more than 5 %."""
    head: bytes = msgpack.packb(dict(header))
    size = sum(len(part) for part in parts)
    flags = 0
    if compress and size:
        body = zstd.compress(b"".join(parts), level=1)
        if len(body) < 0.95 * size:
            parts, flags = [body], COMPRESSED
    return b"".join([_PREFIX.pack(MAGIC, VERSION, flags, len(head), size), head, bytes(_padding(len(head))), *parts])


def length(header: Mapping[str, Any], parts: Sequence[bytes | memoryview] = (), *, compress: bool = False) -> int:
    """Return the length of `pack`'s result; only a compressed frame has to be packed for that."""
    if compress:
        return len(pack(header, parts, compress=True))
    head_size = len(msgpack.packb(dict(header)))
    return _PREFIX.size + head_size + _padding(head_size) + sum(len(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Unread:
    """A frame whose header has been read, and whose body has not."""

    header: dict[str, Any]
    size: int  # of the body, when it is opened
    compressed: bool
    sealed: bool
    head: memoryview  # everything before the body
    data: memoryview

    def body(self, limit: int, unseal: Unseal | None = None) -> memoryview:
        """Return the body, of at most `limit` bytes; raise `WireError` for a sealed one if there is no key."""
        if self.size > limit or ((self.compressed or self.sealed) and not limit):
            raise WireError("wire.too_large", f"a body of {self.size} bytes; the limit is {limit}")
        data = self._unsealed(unseal) if self.sealed else self.data
        return _decompressed(data, self.size) if self.compressed else _plain(data, self.size)

    def _unsealed(self, unseal: Unseal | None) -> memoryview:
        if unseal is None:
            raise WireError("wire.sealed", "a sealed body, for which there is no key here")
        if len(self.data) > self.size + SEAL:  # compressed ones are smaller than what they stand for
            raise WireError("wire.malformed", f"{len(self.data)} bytes of a sealed body of {self.size}")
        return memoryview(unseal(self.head, self.data))


def unpack(data: bytes | bytearray | memoryview, limit: int) -> Frame:
    """Read a whole frame, whose body must not be larger than `limit`."""
    unread = peek(data)
    return Frame(unread.header, unread.body(limit))


def peek(data: bytes | bytearray | memoryview) -> Unread:
    """Read the header only; the body can be opened when its size limit is known."""
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        raise WireError("wire.truncated", f"a frame has at least {_PREFIX.size} bytes, this one {len(view)}")
    magic, version, flags, head_size, body_size = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise WireError("wire.magic", f"a frame begins with {MAGIC!r}, this one with {magic!r}")
    if version != VERSION:
        raise WireError("wire.version", f"frame version {version}; this side speaks {VERSION}: update the older side")
    if flags & ~(COMPRESSED | SEALED):
        raise WireError("wire.malformed", f"unknown frame flags {flags:#x}")
    if head_size > HEADER_LIMIT:
        raise WireError("wire.too_large", f"a header of {head_size} bytes; the limit is {HEADER_LIMIT}")
    rest, padding = view[_PREFIX.size :], _padding(head_size)
    if len(rest) < head_size + padding:
        raise WireError("wire.truncated", f"header of {head_size} bytes, only {len(rest)} came")
    if any(rest[head_size : head_size + padding]):
        raise WireError("wire.malformed", "the bytes between header and body are not zero")
    begin = _PREFIX.size + head_size + padding
    kinds = bool(flags & COMPRESSED), bool(flags & SEALED)
    return Unread(_header(rest[:head_size]), body_size, *kinds, view[:begin], view[begin:])


def for_sealing(frame: bytes | bytearray) -> tuple[bytes, memoryview]:
    """Split a frame of our own into all before its body, now with the flag for sealed, and the body."""
    magic, version, flags, head_size, body_size = _PREFIX.unpack_from(frame)
    begin = _PREFIX.size + head_size + _padding(head_size)
    prefix = _PREFIX.pack(magic, version, flags | SEALED, head_size, body_size)
    return prefix + bytes(frame[_PREFIX.size : begin]), memoryview(frame)[begin:]


def _padding(head_size: int) -> int:
    return -(_PREFIX.size + head_size) % ALIGNED


def _header(data: memoryview) -> dict[str, Any]:
    try:
        header = msgpack.unpackb(
            data, max_str_len=65536, max_array_len=65536, max_map_len=4096, object_pairs_hook=_without_repeats
        )
    except WireError:
        raise
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise WireError("wire.malformed", f"header is not msgpack: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise WireError("wire.malformed", f"header is a {type(header).__name__}, not a map")
    return header


def _without_repeats(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    header = dict(pairs)
    if len(header) != len(pairs) or not {*map(type, header)} <= {str}:
        raise WireError("wire.malformed", "header keys must be strings, each once")
    return header


def _plain(data: memoryview, size: int) -> memoryview:
    if len(data) != size:
        raise WireError("wire.truncated", f"body of {size} bytes announced, {len(data)} came")
    return data


def _decompressed(data: memoryview, size: int) -> memoryview:
    try:
        declared = zstd.get_frame_info(data).decompressed_size
        if declared != size:
            raise WireError("wire.too_large", f"compressed body declares {declared} bytes, the frame {size}")
        return _expanded(data, size)
    except zstd.ZstdError:
        raise WireError("wire.malformed", "compressed body cannot be read") from None


def _expanded(data: memoryview, size: int) -> memoryview:
    """Decompress to exactly `size` bytes, piece by piece: in one call it would take twice the memory."""
    body, fed, at = memoryview(bytearray(size)), 0, 0
    opened = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW})
    while not (opened.eof or (opened.needs_input and fed == len(data))):
        more = data[fed : fed + PIECE] if opened.needs_input else b""
        piece = opened.decompress(more, PIECE)
        if at + len(piece) > size:
            break
        body[at : at + len(piece)] = piece
        fed, at = fed + len(more), at + len(piece)
    if not opened.eof or opened.unused_data or (fed, at) != (len(data), size):
        raise WireError("wire.malformed", f"compressed body does not end after its {size} bytes")
    return body.toreadonly()
