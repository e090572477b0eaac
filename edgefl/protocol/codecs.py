"""How a vector becomes bytes. A lossy codec tells what the receiver will see, so that the sender can make up for it."""

from typing import Protocol

import numpy as np

from edgefl.errors import ConfigError, WireError, nearest
from edgefl.vector import Vector

FLOAT16_MAX = 65504.0


class Codec(Protocol):
    """Both directions of one encoding."""

    @property
    def name(self) -> str: ...

    @property
    def lossless(self) -> bool: ...

    def encode(self, v: Vector) -> tuple[bytes | memoryview, Vector]:
        """The payload, and what the receiver will see."""
        ...

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        """The vector of `size` numbers behind the payload."""
        ...


class Float32:
    """As it is."""

    name = "float32"
    lossless = True

    def encode(self, v: Vector) -> tuple[bytes | memoryview, Vector]:
        plain = np.ascontiguousarray(v, "<f4")
        return plain.view(np.uint8).data, v

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        return _read(payload, size, "<f4")


class Float16:
    """Half the bytes; numbers beyond the range of float16 are brought to its edge."""

    name = "float16"
    lossless = False

    def encode(self, v: Vector) -> tuple[bytes | memoryview, Vector]:
        half = np.clip(v, -FLOAT16_MAX, FLOAT16_MAX).astype("<f2")
        return half.view(np.uint8).data, half.astype(np.float32)

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        return _read(payload, size, "<f2").astype(np.float32)


def _read(payload: bytes | memoryview, size: int, kind: str) -> Vector:
    expected = size * np.dtype(kind).itemsize
    if len(payload) != expected:
        raise WireError("wire.shape", f"{size} numbers as {kind[1:]} are {expected} bytes, {len(payload)} came")
    return np.frombuffer(payload, kind)


CODECS: dict[str, Codec] = {codec.name: codec for codec in (Float32(), Float16())}


def codec(name: str) -> Codec:
    """The codec of this name."""
    if name not in CODECS:
        raise ConfigError(f"wire.codec = '{name}' is not known; {nearest(name, CODECS)}")
    return CODECS[name]
