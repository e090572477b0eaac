"""Images in folders, one for each class, whose names are the classes'. They take Pillow, an extra: edgefl[images]."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.custom import dataset, divided
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.source import Source

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm"})
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM")  # no other decoder sees the file
MOST_PIXELS = 64_000_000  # of one image: a small file may hold a very large one


def from_images(folder: Path, name: str, reading: Reading) -> Source:
    """The images of a folder, float32 in [0, 1], shaped (channels, height, width)."""
    if not folder.is_dir():
        raise ConfigError(
            f"data set '{name}': {folder.absolute()} is not a folder; give one with a folder for each class",
            told="there is no folder where data.source says; give one with a folder for each class",
        )
    files = dict(class_files(folder))
    if not files:
        raise ConfigError(
            f"data set '{name}': {folder.absolute()} has no folder; give one for each class",
            told="it has no folder; give one for each class",
        )
    names = tuple(files)
    paths = [(path, i) for i, inside in enumerate(files.values()) for path in inside]
    if not paths:
        raise ConfigError(
            f"data set '{name}' has no image ({', '.join(sorted(SUFFIXES))}) in its folders",
            told="it has no image in its folders",
        )
    if len(paths) > reading.most_rows:
        raise ConfigError(f"data set '{name}' has {len(paths)} images; keep fewer, or raise data.most_rows")
    x = _pixels([path for path, _ in paths], name, reading)
    y = np.array([i for _, i in paths], np.int64)
    whole = replace(dataset(x, y, len(names), name), class_names=names, numbered=False)
    empty = [label for label, inside in files.items() if not inside]
    seen = [f"{len(paths)} images of {x.shape[2]} x {x.shape[3]}", *(f"no image in '{label}'" for label in empty[:10])]
    return replace(divided(whole, None, name), notes=tuple(seen))


def class_files(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Each class by its name, with its images, both in the order of their names."""
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        yield inner.name, sorted(path for path in inner.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())


def _pixels(paths: list[Path], name: str, reading: Reading) -> Array:
    """All images as bytes (n, channels, height, width)."""
    first = _decoded(paths[0], name, reading)
    DataLimit(f"data set '{name}'", reading.most_mb).take(len(paths) * first.size * (1 + 4))  # bytes, then float32
    held = np.empty((len(paths), *first.shape), np.uint8)
    for i, path in enumerate(paths):
        image = _decoded(path, name, reading)
        if image.shape != first.shape:
            raise ConfigError(
                f"data set '{name}': {path.name} is {image.shape[1]} x {image.shape[2]}, {paths[0].name} is"
                f" {first.shape[1]} x {first.shape[2]}; set data.size = [height, width]",
                told="its images are not all of one size; set data.size = [height, width]",
            )
        held[i] = image
    return held


def _decoded(path: Path, name: str, reading: Reading) -> Array:
    image_module = _pillow(name)
    try:
        with image_module.open(path, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ConfigError(
                    f"data set '{name}': {path} has {image.width} x {image.height} pixels; make it smaller",
                    told="an image has too many pixels; make it smaller",
                )
            plain = image.convert("RGB" if reading.colour else "L")
            if reading.size is not None:
                plain = plain.resize((reading.size[1], reading.size[0]), image_module.Resampling.BILINEAR)
            pixels = np.asarray(plain)
    except (OSError, ValueError, SyntaxError, image_module.DecompressionBombError) as error:
        raise ConfigError(
            f"data set '{name}': {path} cannot be read as an image ({error}); remove it", told="an image cannot be read"
        ) from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if pixels.ndim == 3 else pixels[None]


def _pillow(name: str) -> Any:  # Any: a package that may be absent
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            f"data set '{name}' needs Pillow, which is not installed: pip install 'edgefl[images]'",
            told="it needs Pillow, which is not installed: pip install 'edgefl[images]'",
        ) from None
    return Image
