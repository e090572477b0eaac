"""Samples and labels as arrays, out of what people have: arrays, tensors, a torch Dataset, a Hugging Face dataset.

Nothing is imported for it: who has such an object has imported what it needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.packed import by_name, several
from edgefl.learn.tasks.fields import Named

LABELS = ("label", "labels", "target", "y")  # what a column of labels is called where nothing says that it is one


@dataclass(frozen=True, slots=True)
class SampleArrays:
    """The samples and their labels, each one array or several by name; what the classes are called, where known."""

    x: Named
    y: Named
    class_names: tuple[str, ...] | None = None


def samples(given: Any, where: str = "data") -> SampleArrays:
    """What stands in (x, y), in a torch Dataset or in a Hugging Face dataset (Any: from outside)."""
    if isinstance(given, tuple | list) and len(given) == 2:
        return SampleArrays(arrays(given[0]), arrays(given[1]))
    if hasattr(given, "column_names") and hasattr(given, "features"):
        return _columns(given, where)
    tensors: tuple[Any, ...] = getattr(given, "tensors", ())
    if len(tensors) > 1:  # a TensorDataset has them all, the labels last
        return SampleArrays(arrays(_inputs(tensors[:-1])), array(tensors[-1]))
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "shape"):
        return _items(given, where)
    if hasattr(given, "dataset") and hasattr(given, "batch_size"):
        raise ConfigError(f"{where} = {type(given).__name__}: devices make batches themselves; give its .dataset")
    if hasattr(given, "columns") and hasattr(given, "drop"):
        raise ConfigError(
            f"{where} = {type(given).__name__}: say which column is the label:"
            " (frame.drop(columns='NAME'), frame['NAME'])"
        )
    raise ConfigError(
        f"{where} = {type(given).__name__}: give (x, y), (x, y, group), clients as {{name: (x, y)}}, a torch Dataset"
        " with a length, a Hugging Face dataset, or a name as in a run file"
    )


def array(thing: Any) -> Array:
    """An array of whatever numbers these are (Any: from outside)."""
    if hasattr(thing, "detach"):  # a tensor, perhaps with a gradient or on a GPU
        thing = thing.detach().cpu().numpy()
    try:
        return np.asarray(thing)
    except ValueError:  # lists of different lengths
        raise ConfigError(f"{type(thing).__name__} of {len(thing)} parts is no array: make them all alike") from None


def arrays(thing: Any) -> Named:
    """The same of several arrays, by name or in their order."""
    return {str(name): array(part) for name, part in by_name(thing).items()} if several(thing) else array(thing)


def size(samples: Named) -> int:
    """How many there are."""
    return len(next(iter(samples.values()))) if isinstance(samples, dict) else len(samples)


def _items(given: Any, where: str) -> SampleArrays:
    """One after another, as a data loader would take them."""
    items = [given[i] for i in range(len(given))]
    if not items or not all(isinstance(item, tuple | list) and len(item) > 1 for item in items):
        raise ConfigError(f"{where} = {type(given).__name__}: each item must be a pair of sample and label")
    names = getattr(given, "classes", None)  # as torchvision has them
    x, y = [_inputs(item[:-1]) for item in items], [item[-1] for item in items]
    return SampleArrays(_together(x, where), _together(y, where), _texts(names))


def _inputs(before_label: Sequence[Any]) -> Any:
    """What stands before the label: the sample, or its parts one by one."""
    return before_label[0] if len(before_label) == 1 else tuple(before_label)


def _together(parts: list[Any], where: str) -> Named:
    """Many samples, or many labels, as one array, or one for each name."""
    if not several(parts[0]):
        return _stacked([_sample(part) for part in parts], where)
    if any(not several(part) or list(by_name(part)) != list(by_name(parts[0])) for part in parts):
        raise ConfigError(f"{where}: its items have different parts; all need {', '.join(map(str, by_name(parts[0])))}")
    named = [by_name(part) for part in parts]
    return {str(name): _stacked([_sample(one[name]) for one in named], f"{where}, {name}") for name in named[0]}


def _columns(given: Any, where: str) -> SampleArrays:
    """A Hugging Face dataset: one column of labels; the others are numbers of one sample, or inputs by their names."""
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
    parts = {
        column: _stacked([_sample(sample) for sample in rows[column]], f"{where}, column '{column}'")
        for column in others
    }
    x: Named = parts
    if len(parts) == 1 or all(part.ndim == 1 for part in parts.values()):
        x = np.stack(list(parts.values()), axis=1) if len(parts) > 1 else parts[others[0]]
    return SampleArrays(x, np.asarray(rows[labels[0]]), _texts(getattr(given.features[labels[0]], "names", None)))


def _sample(sample: Any) -> Array:
    """One sample; a picture gets its channels in front."""
    if hasattr(sample, "getbands"):
        pixels = np.asarray(sample)
        return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    return array(sample)


def _stacked(parts: list[Array], where: str) -> Array:
    if parts[0].dtype.kind not in "fiub":
        sort = "texts" if parts[0].dtype.kind in "SU" else parts[0].dtype.name
        raise ConfigError(
            f"{where}: samples and labels must be numbers, and these are {sort}; turn texts into token"
            " numbers and pictures into arrays first"
        )
    if len(shapes := {part.shape for part in parts}) > 1:
        one, other = sorted(shapes)[:2]
        raise ConfigError(f"{where}: samples of shape {one} and {other}; make them all alike (pad or resize)")
    return np.stack(parts)


def _texts(names: Any) -> tuple[str, ...] | None:
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else None
