"""How a vector becomes bytes. A lossy codec tells what the receiver will see, so that the sender can make up for it.

    float32   as it is                          both ways
    float16   half the bytes                    both ways
    int8      a quarter                         both ways                                         codec_int8.py
    topk      the largest changes alone         up only: a model with holes is no model           codec_topk.py

A codec is chosen for each direction, `[wire.up]` and `[wire.down]`; a package adds its own through the entry point
`edgefl.codecs`, one class each. A payload says all that its reader must know: parameters matter to the writer alone.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError, WireError
from edgefl.base.vector import Layout, Vector
from edgefl.learn.registry import Kinds

FLOAT16_MAX = 65504.0
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


class Codec(Protocol):
    """Both halves of one encoding."""

    @property
    def name(self) -> str: ...

    @property
    def lossless(self) -> bool: ...

    @property
    def fixed(self) -> bool:
        """Whether a payload's length is that of its numbers: only then it is used for what an algorithm adds.

        The others are for the model's own vector, whose size the receiver knows before anything comes, and whose
        errors the next update makes up for.
        """
        ...

    @property
    def ways(self) -> tuple[str, ...]:
        """The directions it is meant for: `up`, `down`."""
        ...

    def encode(
        self, v: Vector, layout: Layout | None = None, rng: np.random.Generator | None = None
    ) -> tuple[bytes | memoryview, Vector]:
        """The payload, and what the receiver will see. Without a stream nothing is left to chance."""
        ...

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        """The vector of `size` numbers behind the payload, which is looked at before anything is allocated."""
        ...

    def most(self, layout: Layout) -> int:
        """Bytes that a payload of this layout has at most."""
        ...


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Float32:
    """As it is."""

    name: Literal["float32"] = "float32"

    lossless: ClassVar[bool] = True
    fixed: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("up", "down")

    def encode(
        self,
        v: Vector,
        layout: Layout | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> tuple[bytes | memoryview, Vector]:
        plain = np.ascontiguousarray(v, "<f4")
        return plain.view(np.uint8).data, v

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        return _read(payload, size, "<f4")

    def most(self, layout: Layout) -> int:
        return 4 * layout.size


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Float16:
    """Half the bytes; numbers beyond the range of float16 are brought to its edge."""

    name: Literal["float16"] = "float16"

    lossless: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("up", "down")

    def encode(
        self,
        v: Vector,
        layout: Layout | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> tuple[bytes | memoryview, Vector]:
        half = np.clip(v, -FLOAT16_MAX, FLOAT16_MAX).astype("<f2")
        return half.view(np.uint8).data, half.astype(np.float32)

    def decode(self, payload: bytes | memoryview, size: int) -> Vector:
        return _read(payload, size, "<f2").astype(np.float32)

    def most(self, layout: Layout) -> int:
        return 2 * layout.size


def _read(payload: bytes | memoryview, size: int, kind: str) -> Vector:
    expected = size * np.dtype(kind).itemsize
    if len(payload) != expected:
        raise WireError("wire.shape", f"{size} numbers as {kind[1:]} are {expected} bytes, {len(payload)} came")
    return np.frombuffer(payload, kind)


CODECS: Mapping[str, Codec] = {plain.name: plain for plain in (Float32(), Float16())}  # for any array


class _Codecs(Kinds):
    unknown = "is not known"


REGISTRY = _Codecs(
    "edgefl.codecs",
    {
        "float32": "edgefl.wire.codecs:Float32",
        "float16": "edgefl.wire.codecs:Float16",
        "int8": "edgefl.wire.codec_int8:Int8",
        "topk": "edgefl.wire.codec_topk:TopK",
    },
    does=("encode", "decode"),
)
OURS = ("float32", "float16", "int8", "topk")  # every receiver reads these, whatever its run writes


def codec(
    chosen: str | Mapping[str, Any], where: str = "wire", way: str | None = None, allowed: Collection[str] | None = None
) -> Codec:
    """The codec of this name, or of a table `{codec = name, ...}`; `where` stands in messages."""
    if isinstance(chosen, str) and chosen in CODECS:  # they have no parameters, and go both ways
        return CODECS[chosen]
    table = {"codec": chosen} if isinstance(chosen, str) else chosen
    codec: Codec = REGISTRY.take(table, where, key="codec", allowed=allowed)
    if way is not None and way not in codec.ways:
        raise ConfigError(
            f"{where}.codec = '{table['codec']}' goes {' and '.join(codec.ways)} only; choose another for"
            f' [wire.{way}], e.g. [wire.{way}] codec = "float16"'
        )
    return codec


def described(codec: Codec) -> str | dict[str, Any]:
    """The table of a codec again, as it travels; the bare name where it has no parameters."""
    table = REGISTRY.describe(codec, key="codec")
    name: str = table["codec"]
    return table if len(table) > 1 or ":" in name else name


def reader(kind: str, own: Codec | None = None) -> Codec | None:
    """Who reads payloads of this kind: the run's own codec, or one of ours; None for a kind that is not read here."""
    if own is not None and own.name == kind:
        return own
    reader: Codec | None = REGISTRY[kind]() if kind in OURS else None
    return reader


def beside(codec: Codec) -> Codec:
    """How arrays travel that an algorithm adds to what `codec` is for: without error feedback."""
    return codec if codec.fixed else CODECS["float32"]
