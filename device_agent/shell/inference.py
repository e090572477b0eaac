"""A deployed model at work on the device: how good it is on the device's own data, and what it says of new samples.

onnxruntime and numpy are all it takes. Nothing is connected, and no sample leaves the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.printable import printable
from edgefl.base.vector import Array
from edgefl.delivery.card import class_names, is_regression, target_names
from edgefl.delivery.deployed import Deployed, DeployedEvaluation, Predictor, judge
from edgefl.job.config.agent_file import AgentFile, LocalData
from edgefl.job.run.local_data import local_data, local_source
from edgefl.learn.data import custom
from edgefl.learn.data.catalog import read_table
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import of_device
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.source import arrays, check
from edgefl.learn.data.tabular import unlabelled
from edgefl.learn.losses import softmax
from edgefl.learn.tasks.kinds import formed

OWN = ".own"  # the suffix of a device's own model (device_agent/durable/own_models.py), which is no ONNX
TABLES = {".csv": "csv", ".parquet": "parquet"}


def open_model(file: AgentFile, path: Path) -> Deployed:
    """The model of an ONNX file, within the memory and threads that the agent file allows."""
    return Deployed(path, threads=file.compute.threads, memory=file.compute.memory_mb << 20)


def evaluate(file: AgentFile, model: Predictor, root: Path | None = None) -> Iterator[tuple[str, DeployedEvaluation]]:
    """How the model does on what the device trains with and, if there is such a part, on what it holds back."""
    for part, data in parts(file.data, root):
        yield part, judge(model, _numbered(model, data))


def _numbered(model: Predictor, data: Dataset) -> Dataset:
    """The data with the labels that the model knows: by name where both have names, or real targets."""
    if model.form.kind or data.form.known:
        data = formed(data, model.form, str(model.path))
        if model.form.kind:
            return data
    if is_regression(model.card, model.outputs):
        return of_device(data, 0, (), str(model.path), target_names(model.card) or model.outputs)
    if data.class_names is None:
        return data
    names = class_names(model.card) or ()
    return of_device(data, model.outputs, names, str(model.path)) if names or not data.numbered else data


def parts(settings: LocalData, root: Path | None) -> Iterator[tuple[str, Dataset]]:
    """The device's data; in a trial the test part is common to all, so it is not counted as this device's."""
    yield "trained on", local_data(settings, root)
    if settings.partition is None:
        yield "held back", local_source(settings, root).test


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of each sample: a class, how sure it is and, where known, the class's name; or numbers."""

    values: Array
    confidence: Array | None
    names: Array | None = None
    targets: tuple[str, ...] = ()  # what several numbers are called, where they have names

    def columns(self) -> dict[str, Array]:
        """What there is, by name."""
        if self.values.ndim == 2:
            names = self.targets or [f"prediction_{i}" for i in range(self.values.shape[1])]
            return {name: self.values[:, i] for i, name in enumerate(names)}
        given = {"prediction": self.values, "confidence": self.confidence, "class": self.names}
        return {name: array for name, array in given.items() if array is not None}


def predict(model: Predictor, x: Array) -> Predictions:
    """The model's word on every sample; a model of real targets gives numbers, not classes."""
    z = model.logits(x)
    if model.form.kind:
        own = model.path.suffix == OWN
        file = "`agent export` it, and run what that writes" if own else "run the file"
        raise ConfigError(
            f"{model.path}: is a model of task '{model.form.kind}', whose outputs are no single class or numbers;"
            f" {file} with onnxruntime itself, or `agent evaluate{' --own' if own else ''}`"
        )
    if is_regression(model.card, model.outputs):
        targets = tuple(printable(name) for name in target_names(model.card) or ())
        known = targets if len(targets) == model.outputs else ()
        return Predictions(z[:, 0] if model.outputs == 1 else z, None, targets=known)
    best, names = z.argmax(axis=1), class_names(model.card)
    named = np.array([printable(name) for name in names])[best] if names and len(names) == model.outputs else None
    return Predictions(best, softmax(z).max(axis=1), named)


def samples(path: Path, model: Predictor, reading: Reading | None = None) -> Array:
    """New samples as the model wants them: from an .npz file (array `x`), or from a table, read as `[data]` says."""
    reading = reading or Reading()
    try:
        x = _table(path, model, reading) if path.suffix in TABLES else _archive(path, reading)
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


def _archive(path: Path, reading: Reading) -> Array:
    held = arrays(path, DataLimit(str(path), reading.most_mb))
    if "x" not in held:
        raise ConfigError(f"{path}: lacks an array x; it has {', '.join(sorted(held)) or 'nothing'}")
    return held["x"]


def _table(path: Path, model: Predictor, reading: Reading) -> Array:
    """The samples of a table, as rows or windows; labels, if it has them, are left out."""
    features = model.sample[0] if reading.window else int(np.prod(model.sample))
    return unlabelled(read_table(f"{TABLES[path.suffix]}:{path}", reading, features=features), reading)
