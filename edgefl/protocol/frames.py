"""A frame: a small header that says what it is, and the raw bytes it speaks of.

  magic 4 | version 1 | flags 1 | header length 4 | body length 8 | header (msgpack) | zeros | body

Lengths are the plain sizes, little-endian; the body begins at a multiple of 64, so that numbers in it are aligned;
flag 1 says that it is zstd-compressed. Every limit is checked
before memory is allocated, and nothing here can run code: no pickle, no numpy loader.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import zstandard

from edgefl.errors import WireError

MAGIC = b"EFLF"
VERSION = 1
HEADER_LIMIT = 1 << 20
COMPRESSED = 1
ALIGNED = 64

_PREFIX = struct.Struct("<4sBBIQ")


@dataclass(frozen=True, slots=True)
class Frame:
    """What was said (`header`) and the bytes that came with it."""

    header: dict[str, Any]
    body: memoryview


def pack(header: Mapping[str, Any], parts: Sequence[bytes | memoryview] = (), *, compress: bool = False) -> bytes:
    """The bytes of a frame; with `compress` the body shrinks where that helps."""
    head: bytes = msgpack.packb(dict(header))
    size = sum(len(part) for part in parts)
    flags = 0
    if compress and size:
        body = zstandard.ZstdCompressor(level=1).compress(b"".join(parts))
        if len(body) < 0.95 * size:
            parts, flags = [body], COMPRESSED
    return b"".join([_PREFIX.pack(MAGIC, VERSION, flags, len(head), size), head, bytes(_padding(len(head))), *parts])


def unpack(data: bytes | bytearray | memoryview, limit: int) -> Frame:
    """The frame behind these bytes; its body must not be larger than `limit`."""
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        raise WireError("wire.truncated", f"a frame has at least {_PREFIX.size} bytes, this one {len(view)}")
    magic, version, flags, head_size, body_size = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise WireError("wire.magic", f"a frame begins with {MAGIC!r}, this one with {magic!r}")
    if version != VERSION:
        raise WireError("wire.version", f"frame version {version}; this side speaks {VERSION}: update the older side")
    if flags & ~COMPRESSED:
        raise WireError("wire.malformed", f"unknown frame flags {flags:#x}")
    if head_size > HEADER_LIMIT or body_size > limit:
        raise WireError("wire.too_large", f"header {head_size} and body {body_size} bytes; the limit is {limit}")
    rest, padding = view[_PREFIX.size :], _padding(head_size)
    if len(rest) < head_size + padding:
        raise WireError("wire.truncated", f"header of {head_size} bytes, only {len(rest)} came")
    if any(rest[head_size : head_size + padding]):
        raise WireError("wire.malformed", "the bytes between header and body are not zero")
    return Frame(_header(rest[:head_size]), _body(rest[head_size + padding :], body_size, flags))


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
    made = dict(pairs)
    if len(made) != len(pairs) or not all(isinstance(key, str) for key in made):
        raise WireError("wire.malformed", "header keys must be strings, each once")
    return made


def _body(data: memoryview, size: int, flags: int) -> memoryview:
    if not flags & COMPRESSED:
        if len(data) != size:
            raise WireError("wire.truncated", f"body of {size} bytes announced, {len(data)} came")
        return data
    # The decompressor trusts the size that the frame declares over any limit it is given, so look first.
    try:
        declared = zstandard.frame_content_size(data)
        if declared != size:
            raise WireError("wire.too_large", f"compressed body declares {declared} bytes, the frame {size}")
        body = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError:
        raise WireError("wire.malformed", "compressed body cannot be read") from None
    return memoryview(body)
