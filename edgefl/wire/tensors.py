"""Named arrays in the body of a frame: float32 ones go through a codec, everything else as it is."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, Layout, State
from edgefl.wire.codecs import Codec, reader
from edgefl.wire.messages import Tensor

RAW = "raw"
_DTYPES = {"<f4", "<f8", "<f2", "<i4", "<i8", "<u4", "<u8", "|u1", "|i1", "|b1"}


def encode(
    arrays: Mapping[str, Array],
    codec: Codec,
    layout: Layout | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[tuple[Tensor, ...], tuple[bytes | memoryview, ...], State]:
    """How the arrays are described, their bytes, and what the receiver will see.

    With a layout each of them is a vector of it; from the stream a codec draws what it leaves to chance.
    """
    tensors, parts, seen = [], [], {}
    for name, array in arrays.items():
        if array.dtype == np.float32:
            kind, dtype = codec.name, "<f4"
            payload, plain = codec.encode(array.reshape(-1), layout, rng)
            seen[name] = plain.reshape(array.shape)
        else:
            kind, dtype = RAW, array.dtype.newbyteorder("<").str
            if dtype not in _DTYPES:
                raise ValueError(f"'{name}' is {array.dtype}, which does not travel")
            payload, seen[name] = array.astype(dtype).tobytes(), array
        tensors.append(Tensor(name=name, kind=kind, dtype=dtype, shape=array.shape, bytes=len(payload)))
        parts.append(payload)
    return tuple(tensors), tuple(parts), seen


def decode(
    tensors: Sequence[Tensor], body: memoryview, sizes: Mapping[str, int] | None = None, own: Codec | None = None
) -> State:
    """The arrays behind a frame's body.

    Only the vectors in `sizes`, of these sizes, may be compressed, by one of our codecs or by the run's `own`. What a
    payload claims to hold is checked before memory is allocated for it.
    """
    arrays: State = {}
    start = 0
    for tensor in tensors:
        payload = body[start : start + tensor.bytes]
        start += tensor.bytes
        if tensor.name in arrays:
            raise WireError("wire.malformed", f"tensor '{tensor.name}' comes twice")
        arrays[tensor.name] = _array(tensor, payload, (sizes or {}).get(tensor.name), own)
    if start != len(body):
        raise WireError("wire.truncated", f"tensors take {start} bytes, the body has {len(body)}")
    return arrays


def stands_for_more(tensors: Sequence[Tensor], own: Codec | None = None) -> bool:
    """Whether one of them has fewer bytes than its numbers would make one expect."""
    codecs = (reader(tensor.kind, own) for tensor in tensors)
    return any(codec is not None and not codec.fixed for codec in codecs)


def _array(tensor: Tensor, payload: memoryview, known: int | None, own: Codec | None) -> Array:
    if len(payload) != tensor.bytes:
        raise WireError(
            "wire.truncated", f"tensor '{tensor.name}': {tensor.bytes} bytes announced, {len(payload)} came"
        )
    size = prod(tensor.shape)  # not numpy's: a huge shape must not overflow
    codec = reader(tensor.kind, own)
    if codec is not None and not codec.fixed:
        if known is None:
            raise WireError("wire.dtype", f"tensor '{tensor.name}' has kind {codec.name}, which only a model has")
        if tensor.shape != (known,):
            raise WireError("wire.shape", f"'{tensor.name}' must have shape ({known},), got {tensor.shape}")
        return codec.decode(payload, known)
    if codec is not None:
        if size > 64 * len(payload) + 64:
            raise WireError("wire.too_large", f"tensor '{tensor.name}' claims {size} numbers in {len(payload)} bytes")
        return _shaped(tensor, codec.decode(payload, size))
    if tensor.kind != RAW or tensor.dtype not in _DTYPES:
        raise WireError("wire.dtype", f"tensor '{tensor.name}' has kind {tensor.kind}, type {tensor.dtype}")
    if size * np.dtype(tensor.dtype).itemsize != len(payload):
        raise WireError("wire.shape", f"tensor '{tensor.name}' of shape {tensor.shape} came with {len(payload)} bytes")
    return _shaped(tensor, np.frombuffer(payload, tensor.dtype))


def _shaped(tensor: Tensor, flat: Array) -> Array:
    try:
        return flat.reshape(tensor.shape)
    except ValueError:  # no numbers at all, but a shape that numpy cannot count
        raise WireError("wire.shape", f"tensor '{tensor.name}' cannot have shape {tensor.shape}") from None
