"""From any form of data to a data set that a run can divide, and which device owns which part of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.lab.api.samples import SampleArrays, array, samples, size
from edgefl.learn.data import custom
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import REAL_TARGETS
from edgefl.learn.data.source import Source, checked, one_of_five
from edgefl.learn.models.user_networks import is_module
from edgefl.learn.session_objects import Hold
from edgefl.learn.tasks.fields import Named, unpack

# A name as in a run file; (x, y) or (x, y, group); clients {name: (x, y)}; a torch Dataset; a Hugging Face dataset;
# {"train": ..., "test": ...} of these; a Source or a Dataset of ours. x may be several arrays: a tuple, or by name.
DataLike: TypeAlias = Any
NAME = "data"  # what messages call it
SQUARED = REAL_TARGETS[0]


@dataclass(frozen=True, slots=True)
class GivenData:
    """The data of a run: their name for its file, what is known of them, and the owners in the order of devices."""

    word: str
    owners: tuple[str, ...] | None = None
    loss: str | None = None  # that suits the labels, where we have seen them


def given_data(data: DataLike, test: DataLike | None, loss: str | None, hold: Hold, *, plain: bool = True) -> GivenData:
    """Data under a name that a run file can have; without a test part, a fixed fifth of them (of each owner) is one.

    Of a task that is not plain, `task.kind` says what labels mean and which loss suits them.
    """
    if isinstance(data, str):
        if test is not None:
            raise ConfigError(f"data = '{data}' brings its own test part; leave test out, or give arrays")
        return GivenData(data)
    if is_module(data):
        raise ConfigError(f"data = {type(data).__name__}: this is a model; it comes first, then the data")
    if plain and isinstance(data, list) and data and all(_is_client(one) for one in data):
        raise ConfigError("data is a list of data sets; if each is a client's, give dict(enumerate(data))")
    if isinstance(data, Mapping) and "train" in data:
        test = data.get("test") if test is None else test
        data = data["train"]
    source, owners = _source(data, test, real=loss in REAL_TARGETS, named=loss is not None or not plain)
    if plain and loss is None and not source.train.form.labels:
        _no_marks(source.train.y)
    suits = SQUARED if plain and not source.train.classes and not source.train.form.labels else None
    return GivenData(hold(NAME, lambda: source), owners, loss or suits)


def _source(data: DataLike, test: DataLike | None, *, real: bool, named: bool) -> tuple[Source, tuple[str, ...] | None]:
    if isinstance(data, Source):
        return data, None
    whole, groups, owners = _whole(data)
    tested = None if test is None else _tested(test)
    classes = _classes(whole.y, None if tested is None else tested.y, real=real, named=named)
    train = _dataset(whole, classes)
    if tested is not None:
        return checked(Source(train, _dataset(tested, classes or train.classes), groups, NAME)), owners
    if groups is None:
        return custom.divided(train, None, NAME), None
    rows, aside = _of_each(groups)
    return checked(Source(train.take(rows), train.take(aside), groups[rows], NAME)), owners


def _whole(data: DataLike) -> tuple[SampleArrays, Array | None, tuple[str, ...] | None]:
    """All samples, whose each is, and what the owners are called."""
    if isinstance(data, Dataset):
        x = unpack(data.form.inputs, data.x) if data.form.inputs else data.x
        y = unpack(data.form.labels, data.y) if data.form.labels else data.y
        return SampleArrays(x, y, data.class_names), None, None
    if isinstance(data, Mapping):
        if not data:
            raise ConfigError("data has no clients; give {name: (x, y), ...}")
        parts = [samples(one, f"data['{name}']") for name, one in data.items()]
        if empty := [name for name, part in zip(data, parts, strict=True) if not size(part.x)]:
            raise ConfigError(f"data['{empty[0]}'] has no samples; leave this client out")
        x, y = _joined(parts, "x", tuple(data)), _joined(parts, "y", tuple(data))
        groups = np.repeat(np.arange(len(parts)), [size(part.x) for part in parts])
        return SampleArrays(x, y, parts[0].class_names), groups, tuple(str(name) for name in data)
    if isinstance(data, tuple | list) and len(data) == 3:
        both, owner = samples(data[:2]), array(data[2])
        if owner.shape != (size(both.x),):
            raise ConfigError(f"group of shape {owner.shape} for {size(both.x)} samples; give one for each")
        words, groups = np.unique(owner, return_inverse=True)
        return both, groups.reshape(-1).astype(np.int64), tuple(str(word) for word in words)
    return samples(data), None, None


def _no_marks(y: Array) -> None:
    """Refuse rows of 0 and 1 as real numbers: they are one class each, or several labels at once."""
    if y.ndim == 2 and y.shape[1] > 1 and np.isin(y, (0, 1)).all():
        raise ConfigError(
            f"labels of shape (n, {y.shape[1]}) with 0 and 1 alone: give y.argmax(axis=1) if each sample has one"
            " class, kind='multilabel' if it may have several, loss='squared_error' if these are real numbers"
        )


def _is_client(one: Any) -> bool:
    """Whether it looks like a whole client: a data set, or many samples with a label for each (Any: from outside)."""
    if isinstance(one, tuple) and len(one) == 2:
        x, y = one
        return getattr(x, "ndim", 0) > 1 and getattr(y, "ndim", 0) == 1 and len(x) == len(y)
    return (
        hasattr(one, "__getitem__")
        and hasattr(one, "__len__")
        and not isinstance(one, str | list | tuple | Mapping)
        and not hasattr(one, "shape")
    )


def _tested(test: DataLike) -> SampleArrays:
    """A test part may come by client, too; it is the coordinator's."""
    return _whole(test)[0]


def _classes(y: Named, tested: Named | None, *, real: bool, named: bool) -> int | None:
    """How many classes there are: none where labels are real numbers by type or by the loss, None to count them."""
    if isinstance(y, dict) or isinstance(tested, dict):
        return None
    if real or (y.dtype.kind == "f" and not named):
        return 0
    if tested is None or y.ndim > 1 or not len(tested):
        return None
    return int(max(y.max(), tested.max())) + 1 if y.dtype.kind in "iu" and tested.dtype.kind in "iu" else None


def _dataset(given: SampleArrays, classes: int | None) -> Dataset:
    names, y = given.class_names, given.y
    if names and (classes is None or len(names) >= classes) and not isinstance(y, dict) and y.dtype.kind in "iu":
        return replace(custom.dataset(given.x, y, len(names), NAME), class_names=names)
    return custom.dataset(given.x, given.y, classes, NAME)


def _of_each(groups: Array) -> tuple[Array, Array]:
    """Rows to train and rows to test, of each owner by itself; who has a single sample trains on it."""
    train, test = [], []
    for owner in np.unique(groups):
        rows = np.flatnonzero(groups == owner)
        kept, aside = one_of_five(len(rows)) if len(rows) > 1 else (np.arange(1), np.arange(0))
        train.append(rows[kept])
        test.append(rows[aside])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _joined(parts: list[SampleArrays], what: str, names: tuple[Any, ...]) -> Named:
    """The samples or labels of all clients one after another, of each input by itself."""
    own: list[Any] = [getattr(part, what) for part in parts]  # arrays, or several by name
    words = [tuple(one) if isinstance(one, dict) else () for one in own]
    for name, has in zip(names, words, strict=True):
        if has != words[0]:
            here, there = (", ".join(few) or "one array" for few in (has, words[0]))
            raise ConfigError(f"data['{name}'] has as {what} {here}, data['{names[0]}'] has {there}; all need the same")
    if not words[0]:
        return _concatenated(own, what, names)
    return {word: _concatenated([one[word] for one in own], f"{what} {word}", names) for word in words[0]}


def _concatenated(arrays: list[Array], what: str, names: tuple[Any, ...]) -> Array:
    for name, one in zip(names, arrays, strict=True):
        if one.shape[1:] != arrays[0].shape[1:]:
            raise ConfigError(
                f"data['{name}'] has {what} of shape {one.shape[1:]} for each sample, data['{names[0]}'] has"
                f" {arrays[0].shape[1:]}; all clients need the same"
            )
    return np.concatenate(arrays)
