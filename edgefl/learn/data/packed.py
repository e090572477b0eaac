"""Several named arrays from outside, or labels of any shape, as rows that a form tells how to read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.source import pixels
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.fields import WHOLE, Field, Fields, numbered


def several(x: Any) -> bool:
    """Whether a sample is several arrays: by name, or a tuple of them, whose order the network knows (Any: yours)."""
    return isinstance(x, Mapping) or (isinstance(x, tuple) and bool(x) and all(hasattr(part, "shape") for part in x))


def by_name(x: Any) -> Mapping[str, Any]:
    """Several inputs by their names; those of a tuple have numbers instead."""
    return x if isinstance(x, Mapping) else dict(zip(numbered(len(x)), x, strict=True))


def packed_inputs(named: Mapping[str, Any], name: str) -> tuple[Array, Fields]:
    """Rows of several inputs: bytes are pixels and become [0, 1], int64 are token numbers, all else is real."""
    arrays = {word: np.asarray(array) for word, array in named.items()}
    arrays = {word: pixels(array) if array.dtype == np.uint8 else array for word, array in arrays.items()}
    return _packed(arrays, "x", name, lambda array: array.dtype == np.int64)


def packed_labels(given: Mapping[str, Any] | Array, name: str) -> tuple[Array, Fields]:
    """Rows of labels by name, or of one label of any shape: whole numbers are classes, others real."""
    arrays = {"": given} if isinstance(given, np.ndarray) else {word: np.asarray(one) for word, one in given.items()}
    return _packed(arrays, "y", name, lambda array: array.dtype.kind in "iub")


def named_arrays(held: Mapping[str, Array], word: str) -> Any:
    """The array of this name in an archive, or those that it divides by a dot: x.image, x.words."""
    return (
        held[word] if word in held else {key[len(word) + 1 :]: held[key] for key in held if key.startswith(f"{word}.")}
    )


def _packed(arrays: Mapping[str, Array], what: str, name: str, is_whole: Any) -> tuple[Array, Fields]:
    sizes = {len(array) if array.ndim else 0 for array in arrays.values()}
    if not arrays or len(sizes) != 1 or any(array.dtype.kind not in "fiub" for array in arrays.values()):
        shown = ", ".join(f"{word} {array.dtype} {array.shape}" for word, array in arrays.items()) or "nothing"
        raise ConfigError(f"data set '{name}': {what} holds {shown}; give numbers of shape (n, ...) with the same n")
    for word, array in arrays.items():
        if word and not word.isidentifier():
            raise ConfigError(f"data set '{name}': {what} has an array '{word}'; name it as an argument of the network")
        if is_whole(array) and np.abs(array).max(initial=0) >= WHOLE:
            raise ConfigError(
                f"data set '{name}': whole numbers of {what} {word} go up to {array.max()}; number them below {WHOLE}"
            )
    known = tuple(Field(word, tuple(array.shape[1:]), bool(is_whole(array))) for word, array in arrays.items())
    return fields.pack(known, arrays), known
