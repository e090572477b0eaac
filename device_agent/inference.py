"""A deployed model at work on the device: how good it is on the device's own data, and what it says of new samples.

onnxruntime and numpy are all it takes. Nothing is connected, and no sample leaves the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefl.config.schema import AgentFile, LocalData
from edgefl.data import custom
from edgefl.data.csv_table import read_table
from edgefl.data.dataset import Dataset
from edgefl.data.labels import of_device
from edgefl.data.source import arrays, check
from edgefl.deployment.card import class_names
from edgefl.deployment.deployed import Deployed, Verdict, judge
from edgefl.errors import ConfigError
from edgefl.losses import softmax
from edgefl.printable import printable
from edgefl.run.local_data import local_data, local_source
from edgefl.vector import Array


def open_model(file: AgentFile, path: Path) -> Deployed:
    """The model of an ONNX file, within the memory and threads that the agent file allows."""
    return Deployed(path, threads=file.compute.threads, memory=file.compute.memory_mb << 20)


def evaluate(file: AgentFile, model: Deployed, root: Path | None = None) -> Iterator[tuple[str, Verdict]]:
    """How the model does on what the device trains with and, if there is such a part, on what it holds back."""
    for part, data in parts(file.data, root):
        yield part, judge(model, _numbered(model, data))


def _numbered(model: Deployed, data: Dataset) -> Dataset:
    """The data with the labels that the model knows: by name where both have names, real numbers where it has one."""
    if model.outputs == 1:
        return of_device(data, 0, (), str(model.path))
    if data.class_names is None:
        return data
    names = class_names(model.card) or ()
    return of_device(data, model.outputs, names, str(model.path)) if names or not data.numbered else data


def parts(settings: LocalData, root: Path | None) -> Iterator[tuple[str, Dataset]]:
    """The device's data; in a trial the test part is everybody's, so it is not counted as this device's."""
    yield "trained on", local_data(settings, root)
    if settings.partition is None:
        yield "held back", local_source(settings, root).test


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of each sample: a class, how sure it is and, where known, the class's name; or a number."""

    values: Array
    confidence: Array | None
    names: Array | None = None

    def columns(self) -> dict[str, Array]:
        """What there is, by name."""
        given = {"prediction": self.values, "confidence": self.confidence, "class": self.names}
        return {name: array for name, array in given.items() if array is not None}


def predict(model: Deployed, x: Array) -> Predictions:
    """The model's word on every sample; a model with one output gives numbers, not classes."""
    z = model.logits(x)
    if model.outputs == 1:
        return Predictions(z[:, 0], None)
    best, names = z.argmax(axis=1), class_names(model.card)
    known = np.array([printable(name) for name in names])[best] if names and len(names) == model.outputs else None
    return Predictions(best, softmax(z).max(axis=1), known)


def samples(path: Path, model: Deployed) -> Array:
    """New samples from an .npz file (array `x`) or a .csv file (one sample a line), as the model wants them."""
    try:
        x = _table(path, model) if path.suffix == ".csv" else _archive(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path}: no such file; give an .npz with an array x, or a .csv") from None
    features = int(np.prod(model.sample))
    if x.ndim == 2 and x.shape[1] == features:
        x = x.reshape(len(x), *model.sample)  # a table has rows, whatever the samples' shape
    if np.dtype(model.dtype).kind == "i":
        x = x.astype(np.int64)
    data = custom.dataset(x, np.zeros(len(x), np.int64), 1, str(path))
    check(data, str(path))
    return data.x


def write(path: Path, predictions: Predictions) -> None:
    """Predictions as .npz (arrays `prediction`, `confidence`, `class`) or as .csv."""
    try:
        if path.suffix == ".npz":
            np.savez(path, allow_pickle=False, **predictions.columns())
        else:
            path.write_text("\n".join(table(predictions)) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another --out") from None


def table(predictions: Predictions) -> Iterator[str]:
    """Predictions as lines of a .csv file."""
    columns = predictions.columns()
    yield ",".join(columns)
    for row in zip(*columns.values(), strict=True):
        yield ",".join(_cell(value) for value in row)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return f'"{value.replace(chr(34), 2 * chr(34))}"' if {",", '"'} & set(value) else str(value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _archive(path: Path) -> Array:
    held = arrays(path)
    if "x" not in held:
        raise ConfigError(f"{path}: lacks an array x; it has {', '.join(sorted(held)) or 'nothing'}")
    return held["x"]


def _table(path: Path, model: Deployed) -> Array:
    """The samples of a .csv file; labels, if it has them, are left out."""
    return read_table(path, str(path), features=int(np.prod(model.sample))).x.astype(np.float32)
