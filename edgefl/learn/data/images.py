"""The image sets: samples are (channels, height, width), float32 in [0, 1], not standardised."""

import gzip
import struct
from dataclasses import replace
from importlib.util import find_spec
from math import prod
from pathlib import Path

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.image_folder import MOST_PIXELS
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.source import Source, arrays, held_out, images, pixels, reading


def digits() -> Source:
    """1797 digits of 8x8 that ship with scikit-learn: they need no download.

    Its file is read without it: to import it takes 80 MB and a second.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError("data set 'digits' needs scikit-learn: pip install 'edgefl[coordinator]'")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with reading(file), gzip.open(file, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",")
    pictures, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    whole = replace(images(pixels(pictures, 16), labels, 10), class_names=tuple("0123456789"))
    train, test = held_out(len(whole))
    return Source(whole.take(train), whole.take(test), None, "digits")


def mnist(folder: Path, limit: DataLimit) -> Source:
    return _idx_pair(folder / "MNIST" / "raw", "mnist", limit)


def fashion_mnist(folder: Path, limit: DataLimit) -> Source:
    return _idx_pair(folder / "FashionMNIST" / "raw", "fashion_mnist", limit)


def _idx_pair(folder: Path, name: str, limit: DataLimit) -> Source:
    train, test = (
        images(
            pixels(idx(folder / f"{part}-images-idx3-ubyte.gz", 3, limit)),
            idx(folder / f"{part}-labels-idx1-ubyte.gz", 1, limit),
            10,
        )
        for part in ("train", "t10k")
    )
    return Source(train, test, None, name)


def idx(path: Path, axes: int, limit: DataLimit) -> Array:
    """The bytes of a gzipped IDX file: two zeros, type 8 (bytes), the number of axes, their lengths, the data."""
    with reading(path), gzip.open(path) as file:
        header = file.read(4 + 4 * axes)
        if header[:4] != bytes([0, 0, 8, axes]) or len(header) < 4 + 4 * axes:
            raise ValueError(f"not an IDX file of bytes with {axes} axes")
        shape = struct.unpack_from(f">{axes}I", header, 4)
        limit.take(4 * prod(shape))  # as pixels of float32
        return np.frombuffer(file.read(prod(shape) + 1), np.uint8).reshape(shape)


def usps(folder: Path, limit: DataLimit) -> Source:
    d = arrays(folder / "usps.npz", limit)
    train, test = (images(pixels(d[f"x_{part}"], 2000), d[f"y_{part}"], 10) for part in ("train", "test"))
    return Source(train, test, None, "usps")


def emnist_letters(folder: Path, limit: DataLimit) -> Source:
    d = arrays(folder / "emnist_letters_subset.npz", limit)
    train, test = (images(pixels(d[f"x_{part}"]), d[f"y_{part}"], 26) for part in ("train", "test"))
    return Source(train, test, None, "emnist_letters")


def femnist(folder: Path, limit: DataLimit) -> Source:
    """Characters of 105 writers, ink = 1; the writers held out for clients never seen are left out."""
    d = arrays(folder / "femnist_subset.npz", limit)
    train, test = (images(pixels(255 - d["x"][d["split"] == part]), d["y"][d["split"] == part], 62) for part in (0, 1))
    return Source(train, test, d["writer"][d["split"] == 0].astype(np.int64), "femnist")


def cifar10(folder: Path, limit: DataLimit) -> Source:
    labels = arrays(folder / "labels.npz", limit)
    sheets = [folder / f"data_batch_{i}.jpg" for i in range(1, 6)]
    train, test = (
        tiles(sheets, labels["train"], 10, limit),
        tiles([folder / "test_batch.jpg"], labels["test"], 10, limit),
    )
    return Source(train, test, None, "cifar10")


def cifar100(folder: Path, limit: DataLimit) -> Source:
    labels = arrays(folder / "labels.npz", limit)
    train, test = (tiles([folder / f"{part}.jpg"], labels[part], 100, limit) for part in ("train", "test"))
    return Source(train, test, None, "cifar100")


def mnist_m(folder: Path, limit: DataLimit) -> Source:
    """9001 coloured digits: the first 7000 to train, the rest to test, for it comes without a split."""
    whole = tiles([folder / "mnist_m_test.jpg"], arrays(folder / "labels.npz", limit)["y"], 10, limit)
    train, test = (Dataset(whole.x[rows], whole.y[rows], 10) for rows in (slice(7000), slice(7000, None)))
    return Source(train, test, None, "mnist_m")


def tiles(sheets: list[Path], y: Array, classes: int, limit: DataLimit, side: int = 32) -> Dataset:
    """Colour images cut from sheets of square tiles, row by row; tiles beyond the last label are padding."""
    try:
        from PIL import Image  # noqa: PLC0415 - absent on devices
    except ImportError as e:
        raise ConfigError(f"{sheets[0]}: reading pictures needs Pillow: pip install 'edgefl[coordinator]'") from e
    limit.take(4 * len(y) * 3 * side * side)
    x = np.empty((len(y), 3, side, side), np.float32)
    done = 0
    for sheet in sheets:
        with reading(sheet):
            try:
                with Image.open(sheet, formats=("JPEG",)) as picture:
                    if picture.width * picture.height > MOST_PIXELS:
                        raise ValueError(f"{picture.width} x {picture.height} pixels are too many")
                    raw = np.asarray(picture.convert("RGB"))
            except Image.DecompressionBombError as e:
                raise ValueError(str(e)) from e
            rows, columns = raw.shape[0] // side, raw.shape[1] // side
            cut = raw.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, side, side)
        room = x[done : done + len(cut)]
        np.divide(cut[: len(room)], np.float32(255), out=room)
        done += len(room)
    if done < len(y):
        raise ConfigError(f"{sheets[-1].parent}: {done} tiles for {len(y)} labels; fetch the folder again")
    return Dataset(x, y.astype(np.int64), classes)
