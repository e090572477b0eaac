"""What a data set is before it is divided, and the checks every one of them passes."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgefl import seeds
from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError
from edgefl.tasks.fields import in_words
from edgefl.vector import Array


@dataclass(frozen=True, slots=True)
class Source:
    """A whole data set. `groups` is the natural owner of each training sample (a person, a writer), if it has any."""

    train: Dataset
    test: Dataset
    groups: Array | None
    name: str
    notes: tuple[str, ...] = ()  # what its reader saw and an operator may want to know


def checked(source: Source) -> Source:
    """The source itself, if every part of it can be trained on."""
    for part, data in (("train", source.train), ("test", source.test)):
        check(data, f"data set '{source.name}', {part} part")
    train, test = source.train, source.test
    if (train.shape, train.classes, train.targets) != (test.shape, test.classes, test.targets):
        raise ConfigError(
            f"data set '{source.name}': samples of shape {train.shape} with {_kinds(train)} to train but "
            f"{test.shape} with {_kinds(test)} to test; both parts must agree"
        )
    if source.groups is not None and source.groups.shape != (len(train),):
        raise ConfigError(
            f"data set '{source.name}': groups of shape {source.groups.shape} for {len(train)} training samples; "
            "give one owner for each"
        )
    if train.form != test.form:
        here, there = (in_words((*part.form.inputs, *part.form.labels)) or "plain" for part in (train, test))
        raise ConfigError(
            f"data set '{source.name}': arrays {here} to train but {there} to test; both parts must agree"
        )
    return source


def _kinds(data: Dataset) -> str:
    return f"{data.classes} classes" if data.classes else f"{data.targets} real targets"


def check(data: Dataset, where: str) -> None:
    """Refuse a dataset that nobody could train on; `where` begins the message."""
    if len(data) == 0:
        raise ConfigError(f"{where} is empty; give at least one sample")
    if len(data.y) != len(data):
        raise ConfigError(f"{where} has {len(data)} samples but {len(data.y)} labels; give one label for each")
    for i in range(0, len(data), 4096):  # in blocks: the mask of a whole image set would be large
        if not np.isfinite(data.x[i : i + 4096]).all():
            row = i + int(np.argmin(np.isfinite(data.x[i : i + 4096]).reshape(-1, max(1, data.x[0].size)).all(axis=1)))
            raise ConfigError(f"{where} has NaN or infinity in sample {row}; clean or drop it")
    if not np.isfinite(data.y).all():
        raise ConfigError(f"{where} has NaN or infinity among its labels; clean or drop those samples")
    if data.class_names is not None and len(data.class_names) != data.classes:
        raise ConfigError(f"{where} names {len(data.class_names)} of {data.classes} classes; give each a name")
    if data.target_names is not None and len(data.target_names) != data.targets:
        raise ConfigError(f"{where} names {len(data.target_names)} of {data.targets} targets; give each a name")
    low, high = data.y.min(), data.y.max()
    if data.classes and not 0 <= low <= high < data.classes:
        raise ConfigError(f"{where} has labels from {low} to {high}; expected 0 to {data.classes - 1}")


def held_out(n: int) -> tuple[Array, Array]:
    """Rows to train and rows to test, 80 to 20, for sets that come without a split: always the same ones."""
    order = seeds.stream(0, "held out").permutation(n)
    test = max(1, round(n / 5))
    return np.sort(order[test:]), np.sort(order[:test])


def one_of_five(n: int) -> tuple[Array, Array]:
    """Rows to train and rows to test of data that grow: one of every five is tested on, chosen by chance.

    Rows that are added behind change nothing for those before: what was trained on is never tested on later.
    """
    picks = 5 * np.arange(-(-n // 5)) + seeds.stream(0, "one of five").integers(0, 5, -(-n // 5))
    test = picks[picks < n]
    test = test if len(test) else np.array([n - 1])
    train = np.ones(n, bool)
    train[test] = False
    return np.flatnonzero(train), test


def pixels(raw: Array, white: float = 255.0) -> Array:
    """Grey levels as float32 in [0, 1], made without a wider copy in between."""
    return np.asarray(np.divide(raw, np.float32(white), dtype=np.float32))


def images(x: Array, y: Array, classes: int) -> Dataset:
    """Grey images (n, h, w), already in [0, 1], as one-channel samples."""
    return Dataset(x[:, None], y.astype(np.int64), classes)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a broken file does to its reader into one line; a missing file is the caller's to explain."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error) as e:
        raise ConfigError(f"{path}: cannot be read as data ({' '.join(str(e).split())}); fetch it again") from e


def arrays(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file, by name. Pickled objects are refused: they can run code."""
    with reading(path), path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("not an .npz archive")
        with loaded:
            return {name: loaded[name] for name in loaded.files}
