"""Samples and labels as arrays, out of what people have: arrays, tensors, a torch Dataset, a Hugging Face dataset.

Nothing is imported for it: who has such an object has imported what it needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.errors import ConfigError
from edgefl.vector import Array

LABELS = ("label", "labels", "target", "y")  # what a column of labels is called where nothing says that it is one


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples, their labels, and what the classes are called where that is known."""

    x: Array
    y: Array
    class_names: tuple[str, ...] | None = None


def samples(given: Any, where: str = "data") -> Samples:
    """What stands in (x, y), in a torch Dataset or in a Hugging Face dataset (Any: from outside)."""
    if isinstance(given, tuple | list) and len(given) == 2:
        return Samples(array(given[0]), array(given[1]))
    if hasattr(given, "column_names") and hasattr(given, "features"):
        return _columns(given, where)
    tensors: tuple[Any, ...] = getattr(given, "tensors", ())
    if len(tensors) == 2:  # a TensorDataset has them all
        return Samples(array(tensors[0]), array(tensors[1]))
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "shape"):
        return _items(given, where)
    raise ConfigError(
        f"{where} = {type(given).__name__}: give (x, y), (x, y, group), clients as {{name: (x, y)}}, a torch Dataset"
        " with a length, a Hugging Face dataset, or a name as in a run file"
    )


def array(thing: Any) -> Array:
    """An array of whatever numbers these are (Any: from outside)."""
    if hasattr(thing, "detach"):  # a tensor, perhaps with a gradient or on a GPU
        thing = thing.detach().cpu().numpy()
    return np.asarray(thing)


def _items(given: Any, where: str) -> Samples:
    """One after another, as a data loader would take them."""
    pairs = [given[i] for i in range(len(given))]
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise ConfigError(f"{where} = {type(given).__name__}: each item must be a pair of sample and label")
    names = getattr(given, "classes", None)  # as torchvision has them
    x = _stacked([_sample(sample) for sample, _ in pairs], where)
    return Samples(x, _stacked([array(label) for _, label in pairs], where), _texts(names))


def _columns(given: Any, where: str) -> Samples:
    """A Hugging Face dataset: one column of labels, and one of samples or several of numbers."""
    columns = list(given.column_names)
    named = [column for column in columns if hasattr(given.features[column], "names")]  # a ClassLabel
    labels = named or [column for column in columns if column in LABELS]
    others = [column for column in columns if column not in labels]
    if len(labels) != 1 or not others:
        raise ConfigError(
            f"{where}: columns {', '.join(columns)}, and {len(labels)} of them are labels; keep the samples and one"
            " label with select_columns([...]), and call that one 'label'"
        )
    rows: Mapping[str, Any] = given.with_format(None)[:]
    parts = [_stacked([_sample(sample) for sample in rows[column]], f"{where}, column '{column}'") for column in others]
    if len(parts) > 1 and any(part.ndim > 1 for part in parts):
        raise ConfigError(
            f"{where}: columns {', '.join(others)} are no numbers that make one sample together; keep one of them with"
            " select_columns([...])"
        )
    x = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    return Samples(x, np.asarray(rows[labels[0]]), _texts(getattr(given.features[labels[0]], "names", None)))


def _sample(sample: Any) -> Array:
    """One sample; a picture gets its channels in front."""
    if hasattr(sample, "getbands"):
        pixels = np.asarray(sample)
        return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    return array(sample)


def _stacked(parts: list[Array], where: str) -> Array:
    if parts[0].dtype.kind not in "fiub":
        raise ConfigError(
            f"{where}: samples and labels must be numbers, and these are {parts[0].dtype.name}; turn texts into token"
            " numbers and pictures into arrays first"
        )
    if len(shapes := {part.shape for part in parts}) > 1:
        one, other = sorted(shapes)[:2]
        raise ConfigError(f"{where}: samples of shape {one} and {other}; make them all alike (pad or resize)")
    return np.stack(parts)


def _texts(names: Any) -> tuple[str, ...] | None:
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else None
