"""The files behind a data source of the operator's own, and what changes when one of them does."""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.learn.data.image_folder import class_files
from edgefl.system.user_files import located

KINDS = ("npz", "csv", "parquet", "sqlite", "images")  # KIND:path; anything else before a colon is a module
SEVERAL = ("csv", "parquet")  # whose path may be a folder, or a pattern such as logs/*.csv
MISSING = "a file that data.source names is not there"


def is_file(source: str) -> bool:
    """Whether a source is read from files, and not given by a function or by name."""
    kind, colon, rest = source.partition(":")
    return bool(colon and rest) and kind in KINDS


def is_pattern(path: Path) -> bool:
    """Whether it may mean several files."""
    return any(sign in path.name for sign in "*?[")


def paths_of(source: str) -> list[Path]:
    """The files of a source, in the order of their names."""
    kind, _, rest = source.partition(":")
    path = located(Path(rest))
    if kind not in SEVERAL:
        return [path]
    if path.is_dir():
        return sorted(path.glob(f"*.{kind}"))
    if is_pattern(path) and not path.exists():
        return sorted(one for one in located(path.parent).glob(path.name) if one.is_file())
    return [path]


def existing(source: str) -> list[Path]:
    """The same, if they are there."""
    paths = paths_of(source)
    if not paths:
        raise ConfigError(f"data set '{source}': no such file; give a path that exists", told=MISSING)
    for path in paths:
        if not path.is_file():
            raise ConfigError(
                f"data set '{source}': {path.absolute()} is not a file; give a path that exists", told=MISSING
            )
    return paths


def version(source: str) -> tuple[object, ...]:
    """What changes when the files of a source do; a file that is not there counts as one more version."""
    return tuple((str(path), *_about(path)) for path in _watched(source))


def contents(source: str | None) -> str | None:
    """Return a digest of what is in the files of a source, wherever they lie; None if one cannot be read."""
    if source is None or not is_file(source):
        return None
    paths, digest = [path for path in _watched(source) if path.is_file()], sha256()
    if not paths:
        return None
    first = paths_of(source)[0]
    folder = first if first.is_dir() else first.parent
    try:
        for path in paths:
            if len(paths) > 1:  # their names say in which order they are read, and the classes of images
                digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(_digest(path, *_about(path)))
    except OSError:
        return None
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def _digest(path: Path, *_version: int) -> bytes:
    """The digest of one file, which is read again when it has changed."""
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.digest()


def _watched(source: str) -> Iterator[Path]:
    kind = source.partition(":")[0]
    for path in paths_of(source):
        yield path
        if kind == "sqlite":
            yield path.with_name(f"{path.name}-wal")  # what was written since the last checkpoint of its writer
        if kind == "images" and path.is_dir():
            for _, files in class_files(path):
                yield from files


def _about(path: Path) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino
