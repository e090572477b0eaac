"""Named arrays in the body of a frame: float32 vectors go through the codec, everything else as it is."""

from collections.abc import Mapping, Sequence

import numpy as np

from edgefl.errors import WireError
from edgefl.protocol.codecs import CODECS, Codec
from edgefl.protocol.messages import Tensor
from edgefl.vector import Array, State

RAW = "raw"
_DTYPES = {"<f4", "<f8", "<f2", "<i4", "<i8", "<u4", "<u8", "|u1", "|i1", "|b1"}


def encode(
    arrays: Mapping[str, Array], codec: Codec
) -> tuple[tuple[Tensor, ...], tuple[bytes | memoryview, ...], State]:
    """How the arrays are described, their bytes, and what the receiver will see."""
    tensors, parts, seen = [], [], {}
    for name, array in arrays.items():
        if array.dtype == np.float32:
            kind, dtype = codec.name, "<f4"
            payload, plain = codec.encode(array.reshape(-1))
            seen[name] = plain.reshape(array.shape)
        else:
            kind, dtype = RAW, array.dtype.newbyteorder("<").str
            if dtype not in _DTYPES:
                raise ValueError(f"'{name}' is {array.dtype}, which does not travel")
            payload, seen[name] = array.astype(dtype).tobytes(), array
        tensors.append(Tensor(name=name, kind=kind, dtype=dtype, shape=array.shape, bytes=len(payload)))
        parts.append(payload)
    return tuple(tensors), tuple(parts), seen


def decode(tensors: Sequence[Tensor], body: memoryview) -> State:
    """The arrays behind a frame's body."""
    arrays: State = {}
    start = 0
    for tensor in tensors:
        payload = body[start : start + tensor.bytes]
        start += tensor.bytes
        if tensor.name in arrays:
            raise WireError("wire.malformed", f"tensor '{tensor.name}' comes twice")
        arrays[tensor.name] = _array(tensor, payload)
    if start != len(body):
        raise WireError("wire.truncated", f"tensors take {start} bytes, the body has {len(body)}")
    return arrays


def _array(tensor: Tensor, payload: memoryview) -> Array:
    if len(payload) != tensor.bytes:
        raise WireError(
            "wire.truncated", f"tensor '{tensor.name}': {tensor.bytes} bytes announced, {len(payload)} came"
        )
    size = int(np.prod(tensor.shape, dtype=object)) if tensor.shape else 1  # object: a huge shape must not overflow
    if tensor.kind in CODECS:
        if size > 64 * len(payload) + 64:
            raise WireError("wire.too_large", f"tensor '{tensor.name}' claims {size} numbers in {len(payload)} bytes")
        return _shaped(tensor, CODECS[tensor.kind].decode(payload, size))
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
