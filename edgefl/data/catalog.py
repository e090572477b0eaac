"""Where data come from: a name in the run file becomes a data set.

    digits, synthetic, synthetic(a,b)     need no file
    mnist, uci_har, ...                   a folder of the data root
    npz:path, csv:path                    the operator's own file, here or beside the run or agent file
    package.module:function               the operator's own function, in a module that stands there or is installed
    a word                                a function that an installed package names in the entry point `edgefl.data`

Images are float32 in [0, 1], shaped (channels, height, width). Sensor windows are standardised for each channel
by the training part, shaped (channels, time). Texts are int64 token numbers. Labels are int64.
"""

import os
from collections.abc import Callable
from pathlib import Path

from edgefl.data import custom, images, signals, synthetic, text
from edgefl.data.source import Source, checked
from edgefl.errors import ConfigError, nearest
from edgefl.registry import Registry
from edgefl.system import user_files

__all__ = ["FOLDERS", "NAMES", "Source", "data_root", "load"]

MADE: dict[str, Callable[[], Source]] = {"digits": images.digits, "synthetic": synthetic.blobs}
# By name: the folder of the data root, and who reads it.
FOLDERS: dict[str, tuple[str, Callable[[Path], Source]]] = {
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
NAMES = (*MADE, "synthetic(a,b)", "synthetic(iid)", *FOLDERS)


def data_root(explicit: Path | None = None) -> Path:
    """The folder of data sets: the one given, else EDGEFL_DATA, else ../shared/data if it is there, else the cache."""
    if explicit is not None:
        return explicit
    if named := os.environ.get("EDGEFL_DATA"):
        return Path(named).expanduser()
    shared = Path("..", "shared", "data")
    return shared if shared.is_dir() else Path.home() / ".cache" / "edgefl"


def load(name: str, root: Path | None = None) -> Source:
    """The data set of this name, checked. A given name always means the same data in the same order."""
    return checked(_read(name, root))


def _read(name: str, root: Path | None) -> Source:
    if ":" in name:
        return _read_own(name)
    if name.startswith("synthetic("):
        return synthetic.named(name)
    if name in MADE:
        return MADE[name]()
    if name in FOLDERS:
        return _read_folder(name, data_root(root))
    if name in THEIRS:
        return custom.called(THEIRS[name], name, name)
    hint = nearest(name, (*NAMES, *THEIRS))
    raise ConfigError(f"unknown data set '{name}'; {hint} (your own: npz:path, csv:path, package.module:function)")


def _read_own(name: str) -> Source:
    kind, _, rest = name.partition(":")
    if not kind or not rest:
        raise ConfigError(f"data set '{name}' is half a name; write npz:path, csv:path or package.module:function")
    if kind == "npz":
        return custom.from_npz(user_files.located(Path(rest)), name)
    if kind == "csv":
        return custom.from_csv(user_files.located(Path(rest)), name)
    return custom.from_function(name)


def _read_folder(name: str, root: Path) -> Source:
    folder, read = FOLDERS[name]
    try:
        return read(root / folder)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise ConfigError(
            f"data set '{name}': {e.filename} is missing, looked in {(root / folder).absolute()}; point --data-root or "
            'EDGEFL_DATA at the folder that holds it, or use data = "digits"'
        ) from e
    except KeyError as e:
        raise ConfigError(f"data set '{name}': a file in {root / folder} lacks {e}; fetch the folder again") from e
