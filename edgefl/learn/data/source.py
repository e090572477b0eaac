"""What a data set is before it is divided, and the checks every one of them passes."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.tasks.fields import in_words

ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")  # how one begins that holds something, and an empty one
WIDTH = 4  # bytes of a float32
HEADER = 1 << 14  # bytes of a member in which the header of its array ends; numpy takes none that is longer


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
    """Refuse a dataset that cannot be trained on; `where` begins the message."""
    if len(data) == 0:
        raise ConfigError(f"{where} is empty; give at least one sample", told="it has no sample; give at least one")
    if len(data.y) != len(data):
        raise ConfigError(f"{where} has {len(data)} samples but {len(data.y)} labels; give one label for each")
    for i in range(0, len(data), 4096):  # in blocks: the mask of a whole image set would be large
        if not np.isfinite(data.x[i : i + 4096]).all():
            row = i + int(np.argmin(np.isfinite(data.x[i : i + 4096]).reshape(-1, max(1, data.x[0].size)).all(axis=1)))
            raise ConfigError(
                f"{where} has NaN or infinity in sample {row}; clean or drop it",
                told=f"NaN or infinity in sample {row}; clean or drop it",
            )
    if not np.isfinite(data.y).all():
        raise ConfigError(
            f"{where} has NaN or infinity among its labels; clean or drop those samples",
            told="NaN or infinity among its labels; clean or drop those samples",
        )
    if data.class_names is not None and len(data.class_names) != data.classes:
        raise ConfigError(f"{where} names {len(data.class_names)} of {data.classes} classes; give each a name")
    if data.target_names is not None and len(data.target_names) != data.targets:
        raise ConfigError(f"{where} names {len(data.target_names)} of {data.targets} targets; give each a name")
    low, high = data.y.min(), data.y.max()
    if data.classes and not 0 <= low <= high < data.classes:
        raise ConfigError(
            f"{where} has labels from {low} to {high}; expected 0 to {data.classes - 1}",
            told="it has labels below 0, or beyond the number of its classes",
        )


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


# What broken files do to their readers; an encrypted archive is a RuntimeError.
UNREADABLE = (
    OSError, ValueError, EOFError, LookupError, RuntimeError, MemoryError, OverflowError, BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a broken file does to its reader into one line; a missing file is the caller's to explain."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except UNREADABLE as e:
        raise ConfigError(
            f"{path}: cannot be read as data ({' '.join(str(e).split())}); fetch it again",
            told="a file cannot be read as data",
        ) from e


def arrays(path: Path, limit: DataLimit) -> dict[str, Array]:
    """All arrays of an .npz file, by name. Pickled objects are refused: they can run code.

    The headers are read first, so that an archive which holds more than the limit is refused before that is in memory.
    """
    with reading(path), path.open("rb") as file:
        if file.read(4) not in ARCHIVES:  # numpy would read a single array whole
            raise ValueError("not an .npz archive")
        with ZipFile(file) as archive:
            members = [name for name in dict.fromkeys(archive.namelist()) if name.endswith(".npy")]
            for name in members:
                limit.take(_claimed(archive, name))
        file.seek(0)
        with np.load(file, allow_pickle=False) as loaded:
            return {name.removesuffix(".npy"): loaded[name] for name in members}


def _claimed(archive: ZipFile, name: str) -> int:
    """Return how many bytes an array of an archive takes, once numbers that are narrower have become float32."""
    with archive.open(name) as member:
        header = BytesIO(member.read(HEADER))
    version = np.lib.format.read_magic(header)
    if version not in {(1, 0), (2, 0)}:  # 3.0 is that of structured arrays whose fields have names beyond latin-1
        raise ValueError(f"'{name}' is an array of version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(header)
    except Exception as e:  # a header is parsed as Python's literals, which raise many things
        raise ValueError(f"the header of '{name}' cannot be read") from e
    if not dtype.itemsize or any(size < 0 for size in shape):
        raise ValueError(f"'{name}' is an array of {dtype} {shape}")
    return prod(shape) * max(dtype.itemsize, WIDTH)
