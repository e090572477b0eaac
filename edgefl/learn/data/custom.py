"""The operator's own data: an .npz file, or a function (tables are in `edgefl/learn/data/tabular.py`).

Samples become float32 as they are, with two exceptions: bytes (uint8) are pixels and become [0, 1], int64 stays,
for those are token numbers. Whole-number labels are classes 0, 1, 2, ...; other labels are real targets. What has
no test part gives a fixed fifth to it. Labels in several columns, y of shape (n, targets), are as many real targets.

x may be several arrays by name (in a file: x.image, x.words) or a tuple of them, and y several by name; y may also have
any shape, as a mask of an image. `task.kind` says what is learnt then (docs/tasks.md).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.packed import by_name, named_arrays, packed_inputs, packed_labels, several
from edgefl.learn.data.source import Source, arrays, check, one_of_five, pixels
from edgefl.learn.session_objects import shown
from edgefl.learn.tasks.fields import Fields
from edgefl.learn.tasks.form import Form
from edgefl.system import user_code, user_files

log = logging.getLogger(__name__)

MOST_NAMES = 1 << 16  # of classes in a file


def from_npz(path: Path, name: str, most_mb: int | None = None) -> Source:
    """The source in an .npz file: x and y, or x_train, y_train, x_test and y_test.

    Optional: `group`, the owner of each training sample; `classes`, how many there are (or their names) where a
    device may not hold a sample of the last one, and 0 where whole numbers are real targets after all.
    """
    d = arrays(path, DataLimit(f"data set '{name}'", most_mb))
    split = "x_train" in d or "y_train" in d
    required = ("x_train", "y_train", "x_test", "y_test") if split else ("x", "y")
    given_arrays = {key: named_arrays(d, key) for key in required}
    missing = [key for key, held in given_arrays.items() if isinstance(held, dict) and not held]
    if missing:
        raise ConfigError(
            f"data set '{name}' lacks {', '.join(missing)}; it has {', '.join(sorted(d)) or 'nothing'}",
            told=f"it lacks {', '.join(missing)}",
        )
    given = d.get("classes")
    if given is not None and given.size > MOST_NAMES:
        raise ConfigError(f"data set '{name}': 'classes' names {given.size} classes; {MOST_NAMES} are the most")
    names = None if given is None or given.dtype.kind != "U" else tuple(str(word) for word in given.ravel())
    count = None if given is None else int(given) if given.ndim == 0 and given.dtype.kind in "iu" else given.size
    parts = [
        replace(dataset(given_arrays[f"x{part}"], given_arrays[f"y{part}"], count, name), class_names=names)
        for part in (("_train", "_test") if split else ("",))
    ]
    if not split:
        return divided(parts[0], d.get("group"), name)
    classes = max(part.classes for part in parts) if all(part.classes for part in parts) else 0
    train, test = (replace(dataset(part.x, part.y, classes, name), class_names=names, form=part.form) for part in parts)
    return Source(train, test, owners(d.get("group")), name)


def from_function(name: str) -> Source:
    """What `package.module:function` gives back."""
    module, _, function = name.partition(":")
    try:
        namespace = vars(user_code.import_module(name, "data set"))
    except (ImportError, SyntaxError, ValueError) as e:  # ValueError: an empty or relative name
        looked = ", ".join(str(folder) for folder in user_files.folders())
        raise ConfigError(
            f"data set '{name}': {e}; looked in {looked} and on PYTHONPATH",
            told=f"the module that data.source names cannot be imported ({type(e).__name__})",
        ) from e
    if not user_code.is_function(namespace.get(function)):
        functions = [word for word, value in namespace.items() if user_code.is_function(value) and word[:1] != "_"]
        raise ConfigError(
            f"data set '{name}': {module} has no function '{function}'; {nearest(function, functions)}",
            told="the module that data.source names has no function of that name",
        )
    return called(namespace[function], shown(name), function)


def called(function: Callable[[], object], name: str, word: str) -> Source:
    """Return what a user's function returns as a source; it may be a Source, a Dataset or (x, y)."""
    try:
        returned = function()
    except Exception as e:  # the user's function may raise anything
        log.debug("data function failed name=%s", name, exc_info=True)
        raise ConfigError(
            f"data set '{name}': {word} raised {type(e).__name__}: {e} (--log debug shows where)",
            told=f"the function that data.source names raised {type(e).__name__}",
        ) from e
    match returned:
        case Source() as source:
            train, test = (_typed(part, name) for part in (source.train, source.test))
            return Source(train, test, owners(source.groups), name)
        case Dataset() as whole:
            return divided(_typed(whole, name), None, name)
        case (x, y):
            return divided(dataset(x, y, None, name), None, name)
        case (x, y, x_test, y_test):
            train, test = dataset(x, y, None, name), dataset(x_test, y_test, None, name)
            both = max(train.classes, test.classes) if train.classes and test.classes else 0
            train, test = (
                part if part.classes == both else _typed(replace(part, classes=both), name) for part in (train, test)
            )
            return Source(train, test, None, name)
        case other:
            raise ConfigError(
                f"data set '{name}' gave {type(other).__name__}; return a Source, a Dataset, (x, y) or"
                " (x, y, x_test, y_test)",
                told="the function that data.source names gave neither a Source, nor a Dataset, nor arrays x and y",
            )


def dataset(x: Any, y: Any, classes: int | None, name: str) -> Dataset:
    """Arrays from outside as a dataset of the right types; None: count the classes.

    Any: what a user's function returned, one array or several by name.
    """
    inputs: Fields = ()
    labels: Fields = ()
    if several(x):
        x, inputs = packed_inputs(by_name(x), name)
    if isinstance(y, Mapping) or np.ndim(y) > 2:
        y, labels = packed_labels(y if isinstance(y, Mapping) else np.asarray(y), name)
        classes = None  # of their numbers the run file says what they mean
    plain = _dataset(np.asarray(x), np.asarray(y), classes, name)
    return replace(plain, form=Form(inputs=inputs, labels=labels)) if inputs or labels else plain


def _dataset(x: Array, y: Array, classes: int | None, name: str) -> Dataset:
    for what, given in (("x", x), ("y", y)):
        if given.dtype.kind in "OSU":
            how = "np.unique(y, return_inverse=True) numbers names of classes" if what == "y" else "number words first"
            raise ConfigError(
                f"data set '{name}': {what} holds {_sort(given)}, expected numbers; {how}",
                told=f"{what} holds something else than numbers; {how}",
            )
    if x.ndim < 2 or x.dtype.kind not in "fiub" or y.ndim not in {1, 2} or y.dtype.kind not in "fiub":
        raise ConfigError(
            f"data set '{name}': x is {x.dtype} {x.shape} and y is {y.dtype} {y.shape}; "
            "expected numbers of shape (n, ...) and (n,), (n, targets) or (n, ...)",
            told="x and y are not numbers of shape (n, ...) and (n,), (n, targets) or (n, ...)",
        )
    if y.ndim == 2:
        classes = _no_classes(y, classes, name)
    whole = bool(np.isfinite(y).all() and (y == np.floor(y)).all())
    if classes is None:  # whole numbers below 0 are no classes
        classes = int(y.max(initial=0)) + 1 if whole and y.min(initial=0) >= 0 else 0
    if classes and not whole:
        raise ConfigError(f"data set '{name}': labels are not whole numbers; expected 0 to {classes - 1}")
    x = pixels(x) if x.dtype == np.uint8 else x if x.dtype == np.int64 else x.astype(np.float32, copy=False)
    return Dataset(x, y.astype(np.int64 if classes else np.float32, copy=False), classes)


def _sort(given: Array) -> str:
    """What these are that are no numbers."""
    return "texts" if given.dtype.kind in "SU" else f"objects such as {str(given.reshape(-1)[:1].tolist())[1:-1]!s:.40}"


def _no_classes(y: Array, classes: int | None, name: str) -> int:
    """The number of classes of labels in several columns: none, for they are real targets."""
    if classes or not y.shape[1]:
        raise ConfigError(
            f"data set '{name}': y is {y.dtype} {y.shape}, several real targets for each sample, and there are"
            f" {classes or 0} classes; give one column of class numbers, or real targets and no classes"
        )
    return 0


def _typed(given: Dataset, name: str) -> Dataset:
    """A dataset from outside, with arrays of the right types."""
    typed = dataset(given.x, given.y, given.classes, name)
    form = given.form if given.form.known else typed.form
    return replace(typed, class_names=given.class_names, target_names=given.target_names, form=form)


def divided(whole: Dataset, groups: Array | None, name: str) -> Source:
    """A set without a test part as a source: a fixed fifth of it becomes one."""
    check(whole, f"data set '{name}'")
    if len(whole) < 2:
        raise ConfigError(f"data set '{name}' has 1 sample; give at least 2, one to train and one to test")
    if groups is not None and groups.shape != (len(whole),):
        raise ConfigError(
            f"data set '{name}': group of shape {groups.shape} for {len(whole)} samples; give one for each"
        )
    train, test = one_of_five(len(whole))
    return Source(whole.take(train), whole.take(test), None if groups is None else owners(groups[train]), name)


def owners(groups: Array | None) -> Array | None:
    """Owners as numbers: names are numbered in their order."""
    if groups is None or groups.dtype.kind in "iu":
        return groups if groups is None else groups.astype(np.int64)
    return np.unique(groups, return_inverse=True)[1].reshape(groups.shape).astype(np.int64)
