"""Where data come from: a name in the run file becomes a data set.

    digits, synthetic, synthetic(a,b)     need no file
    mnist, uci_har, ...                   a folder of the data root
    npz:path                              the operator's own file, here or beside the run or agent file
    csv:path, parquet:path, sqlite:path   a table, read as `[data]` says (reading.py); of the first two also
                                          a folder, or a pattern such as csv:logs/*.csv
    images:path                           a folder of folders, one for each class
    package.module:function               the operator's own function, in a module that stands there or is installed
    a word                                a function that an installed package names in the entry point `edgefl.data`

Images are float32 in [0, 1], shaped (channels, height, width). Sensor windows are standardised for each channel
by the training part, shaped (channels, time). Texts are int64 token numbers. Labels are int64.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.base.errors import ConfigError, nearest
from edgefl.learn.data import custom, files, images, signals, synthetic, text
from edgefl.learn.data.image_folder import from_images
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.source import Source, checked
from edgefl.learn.registry import Registry

if TYPE_CHECKING:
    from edgefl.learn.data.table import Table

__all__ = ["FOLDERS", "NAMES", "Source", "data_root", "load"]

MADE: dict[str, Callable[[], Source]] = {"digits": images.digits, "synthetic": synthetic.blobs}
# By name: the folder of the data root, and who reads it.
FOLDERS: dict[str, tuple[str, Callable[[Path, DataLimit], Source]]] = {
    "cifar10": ("cifar10", images.cifar10),
    "cifar100": ("cifar100_subset", images.cifar100),
    "emnist_letters": ("emnist_letters_subset", images.emnist_letters),
    "fashion_mnist": ("fashion_mnist", images.fashion_mnist),
    "femnist": ("femnist", images.femnist),
    "mnist": ("mnist", images.mnist),
    "mnist_m": ("mnist_m", images.mnist_m),
    "sent140": ("sent140", text.sent140),
    "uci_har": ("uci_har", signals.uci_har),
    "usps": ("usps", images.usps),
    "watch_rehab": ("watch_rehab", signals.watch_rehab),
}
THEIRS: Registry[Callable[[], object]] = Registry("edgefl.data", {})
TABLES = ("csv", "sqlite", "parquet")
NAMES = (*MADE, "synthetic(a,b)", "synthetic(iid)", *FOLDERS)


def data_root(explicit: Path | None = None) -> Path:
    """The folder of data sets: the one given, else EDGEFL_DATA, else ../shared/data if it is there, else the cache."""
    if explicit is not None:
        return explicit
    if named := os.environ.get("EDGEFL_DATA"):
        return Path(named).expanduser()
    shared = Path("..", "shared", "data")
    return shared if shared.is_dir() else Path.home() / ".cache" / "edgefl"


def check_name(name: str) -> None:
    """Raise `ConfigError` if there is no data set of this name; what stands behind it is not looked at."""
    kind, colon, rest = name.partition(":")
    if colon and not (kind and rest):
        raise ConfigError(f"data set '{name}' is half a name; write csv:path, npz:path or package.module:function")
    if colon or name in MADE or name in FOLDERS or name.startswith("synthetic(") or name in THEIRS:
        return
    hint = nearest(name, (*NAMES, *THEIRS))
    raise ConfigError(f"unknown data set '{name}'; {hint} (your own: csv:path, npz:path, package.module:function)")


def load(name: str, root: Path | None = None, reading: Reading | None = None) -> Source:
    """The data set of this name, checked. A given name, read in a given way, always means the same data in order."""
    return checked(_read(name, root, reading or Reading()))


def _read(name: str, root: Path | None, reading: Reading) -> Source:
    check_name(name)
    kind, colon, _ = name.partition(":")
    if colon and kind in TABLES:
        from edgefl.learn.data import tabular  # noqa: PLC0415 - an agent without a table needs none of it

        return tabular.source_of(read_table(name, reading), reading)
    if reading.of_tables:
        raise ConfigError(
            f"data set '{name}' is no table: data.{reading.of_tables[0]} means nothing to it; leave it out"
        )
    if colon:
        return _read_own(name, reading)
    if name.startswith("synthetic("):
        return synthetic.named(name)
    if name in MADE:
        return MADE[name]()
    if name in FOLDERS:
        return _read_folder(name, data_root(root), DataLimit(f"data set '{name}'", reading.most_mb))
    return custom.called(THEIRS[name], name, name)


def read_table(name: str, reading: Reading, *, features: int | None = None) -> "Table":
    """The table of this name; there must be labels, unless it is known how many `features` there are."""
    paths = files.existing(name)
    match name.partition(":")[0]:
        case "csv":
            from edgefl.learn.data.csv_table import read_csv  # noqa: PLC0415 - an agent without such a file needs none

            return read_csv(paths, name, reading, features=features)
        case "sqlite":
            from edgefl.learn.data.sqlite_rows import read_sqlite  # noqa: PLC0415 - likewise

            return read_sqlite(paths[0], name, reading, features=features)
        case _:
            from edgefl.learn.data.parquet_rows import read_parquet  # noqa: PLC0415 - likewise

            return read_parquet(paths, name, reading, features=features)


def _read_own(name: str, reading: Reading) -> Source:
    match name.partition(":")[0]:
        case "npz":
            return custom.from_npz(files.existing(name)[0], name, reading.most_mb)
        case "images":
            return from_images(files.paths_of(name)[0], name, reading)
        case _:
            return custom.from_function(name)


def _read_folder(name: str, root: Path, limit: DataLimit) -> Source:
    folder, read = FOLDERS[name]
    try:
        return read(root / folder, limit)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise ConfigError(
            f"data set '{name}': {e.filename} is missing, looked in {(root / folder).absolute()}; point --data-root or "
            'EDGEFL_DATA at the folder that holds it, or use data = "digits"',
            told="a file of the data set is missing",
        ) from e
    except KeyError as e:
        raise ConfigError(f"data set '{name}': a file in {root / folder} lacks {e}; fetch the folder again") from e
