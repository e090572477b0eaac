"""A trained model as one ONNX file, run with onnxruntime and numpy and nothing else: outputs, and how good they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
import onnxruntime

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.base.scores import Scored, Scores
from edgefl.base.vector import Array
from edgefl.delivery.card import rows
from edgefl.delivery.inputs_outputs import input_names, on_rows, output_names
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.evaluation.metrics import errors
from edgefl.learn.losses import LOSSES, cross_entropy, squared_error
from edgefl.learn.models.onnx_guard import verify_own
from edgefl.learn.tasks.fields import width
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.kinds import KINDS

SLICE = 64  # samples per pass: bounds memory, whatever the size of the data
MEMORY = 1 << 30
TYPES: dict[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


class Predictor(Protocol):
    """A trained model that can be run here, wherever it comes from."""

    @property
    def path(self) -> Path:
        """Where it lies, for messages."""
        ...

    @property
    def card(self) -> Mapping[str, str]:
        """What it says about itself."""
        ...

    @property
    def form(self) -> Form: ...

    @property
    def sample(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> int: ...

    @property
    def dtype(self) -> type[np.generic]: ...

    def logits(self, x: Array) -> Array: ...


class Deployed:
    """The model of a file: `x` in, `logits` out, or what its card says. It is checked before onnxruntime sees it."""

    def __init__(self, path: Path, *, threads: int = 1, memory: int = MEMORY) -> None:
        self.path = path
        try:
            if path.stat().st_size > memory:
                raise RemoteError("model.too_large", f"a file of more than the {memory >> 20} MB that a model may take")
            data = path.read_bytes()
            verify_own(data, batch=SLICE, limit=memory)
            self._session = _session(data, threads)
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error.strerror}); `edgefl export` writes such a file"
            ) from None
        except RemoteError as error:
            raise ConfigError(f"{path}: refused, {error.code}: {error}") from None
        except _broken() as error:
            raise ConfigError(f"{path}: onnxruntime cannot run it ({' '.join(str(error).split())})") from None
        inputs = {i.name: i for i in self._session.get_inputs()}
        outputs = {o.name: o for o in self._session.get_outputs()}
        self.card: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self.form = rows(self.card)
        takes, gives = input_names(self.form), output_names(self.form)
        if (
            set(inputs) != set(takes)
            or not set(gives) <= set(outputs)
            or any(inputs[name].type not in TYPES for name in takes)
        ):
            raise ConfigError(
                f"{path}: takes {sorted(inputs)} and gives {sorted(outputs)}, expected numbers"
                f" {', '.join(map(repr, takes))} and {', '.join(map(repr, gives))}; `edgefl export` writes such a file"
            )
        several = bool(self.form.inputs)
        self.sample: tuple[int, ...] = (width(self.form.inputs),) if several else tuple(inputs["x"].shape[1:])
        self.outputs = width(self.form.outputs) or int(outputs["logits"].shape[-1])
        self.dtype: type[np.generic] = np.float32 if several else TYPES[inputs["x"].type]

    def logits(self, x: Array) -> Array:
        """The outputs for all of `x`, a slice at a time."""
        check_shape(self, x)
        parts = [
            on_rows(self._session, self.form, np.ascontiguousarray(x[i : i + SLICE], self.dtype))
            for i in range(0, max(len(x), 1), SLICE)
        ]
        return np.concatenate(parts)


def check_shape(model: Predictor, x: Array) -> None:
    """Raise a ConfigError unless these are samples for the model."""
    if tuple(x.shape[1:]) != model.sample:
        raise ConfigError(
            f"{model.path}: takes samples of shape {list(model.sample)}, these have {list(x.shape[1:])};"
            " use the data it was trained for"
        )


@dataclass(frozen=True, slots=True)
class DeployedEvaluation(Scored):
    """How a deployed model does on some data."""

    samples: int
    scores: Scores
    ms_per_sample: float
    per_target: Mapping[str, Scores] | None = None  # the errors of each of several targets


def judge(model: Predictor, data: Dataset) -> DeployedEvaluation:
    """The model's outputs against the labels."""
    if data.classes and int(data.y.max(initial=0)) >= model.outputs:
        raise ConfigError(
            f"{model.path}: knows {model.outputs} classes, these labels go up to {int(data.y.max())};"
            " use the data it was trained for"
        )
    began = perf_counter()
    z = model.logits(data.x)
    took = perf_counter() - began
    pace = 1000 * took / max(1, len(data))
    if model.form.kind:
        kind = KINDS[model.form.kind]
        lost = model.form.loss(LOSSES[kind.loss])(z, data.y)[0]
        scores = kind.scores(model.form, kind.count(model.form, z, data.y), len(data))
        return DeployedEvaluation(len(data), {**scores, "loss": lost}, pace)
    if not data.classes:
        if data.targets != model.outputs:
            raise ConfigError(
                f"{model.path}: predicts {model.outputs} real numbers, these samples have {data.targets} targets;"
                " use the data it was trained for"
            )
        missed = errors(z.reshape(data.y.shape).astype(np.float64) - data.y, data.y)
        names = data.target_names or [str(i) for i in range(data.targets)]
        each = {names[i]: one.scores for i, one in enumerate(missed.per_target)}
        return DeployedEvaluation(len(data), {"loss": squared_error(z, data.y)[0], **missed.scores}, pace, each or None)
    hits = z.argmax(axis=1) == data.y
    shares = [float(hits[data.y == label].mean()) for label in np.unique(data.y)]
    loss, balanced = cross_entropy(z, data.y)[0], sum(shares) / max(1, len(shares))
    return DeployedEvaluation(
        len(data), {"accuracy": float(hits.mean()), "balanced_accuracy": balanced, "loss": loss}, pace
    )


def _session(data: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")  # what was checked, whatever else it may be
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _broken() -> tuple[type[Exception], ...]:
    """What onnxruntime raises for a graph that it cannot load."""
    known = onnxruntime.capi.onnxruntime_pybind11_state
    return known.Fail, known.InvalidArgument, known.InvalidGraph, known.InvalidProtobuf, known.NotImplemented
