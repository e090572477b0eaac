"""The trained model as one ordinary ONNX file: weights inside, `x` in, `logits` out, any batch size."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime

from edgefl.base.errors import RunError
from edgefl.base.vector import Array, Vector
from edgefl.base.version import __version__
from edgefl.delivery.inputs_outputs import named_ends, on_rows
from edgefl.delivery.onnx_edit import OnnxEdit, name_of, named, node, tensor
from edgefl.learn.models.base import Model
from edgefl.learn.models.normalised import Normalised, along
from edgefl.learn.models.onnx.bundle import Bundle
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.system.store import write_atomically

TOLERANCE = 1e-4  # relative; two float32 back-ends differ in the last digits
CENTRED, SCALED = "x.centred", "x.normalised"  # values of a model that takes raw units
WEIGHT, FROZEN = "w.", "frozen."  # how the exporter names the inputs that are weights


def save_onnx(
    path: Path,
    bundle: Bundle,
    model: Model,
    params: Vector,
    *,
    x: Array,
    facts: Mapping[str, str],
    private: bool = True,
    form: Form = PLAIN,
) -> float:
    """Write the model and its card; the largest relative difference from `model` itself on `x`, which is small.

    The file is the graph that devices evaluate with, of the network's bundle, with these weights inside.

    A model that takes raw units (`Normalised`) is written so that the file does too; one of rows, so that it takes
    its inputs by name and gives its outputs in their own shapes.
    """
    data = onnx_model(bundle, params)
    if isinstance(model, Normalised):
        data = on_raw_units(data, model, x.ndim)
    data = with_card(named_ends(data, form), facts)
    _check(data)
    gap = difference(data, model, params, x, form)
    if not gap <= TOLERANCE:
        raise RunError(f"{path}: the exported model differs from the trained one by {gap:.1e}; it was not written")
    write_atomically(path, data, private=private)
    return gap


def with_card(data: bytes, facts: Mapping[str, str]) -> bytes:
    """The same model with these facts in its metadata (`edgefl.delivery.card`)."""
    model = OnnxEdit.opened(data)
    model.describe(facts.get("name", "model"), ("edgefl", __version__), int(facts.get("rounds", 0)), facts)
    return model.written()


def difference(data: bytes, model: Model, params: Vector, x: Array, form: Form = PLAIN) -> float:
    """How far the outputs of the file are from the model's, relative to the largest of them."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    got = on_rows(session, form, x)
    expected = model.logits(params, x)
    return float(np.abs(got - expected).max() / max(1e-12, np.abs(expected).max()))


def on_raw_units(data: bytes, known: Normalised, ndim: int) -> bytes:
    """The same model with its samples normalised inside: (x - mean) * scale, before anything else."""
    model = OnnxEdit.opened(data)
    (given,) = [value for value in model.inputs if name_of(value) == "x"]
    model.rename("x", SCALED, reads_alone=True)
    steps = {"normalise.mean": known.mean, "normalise.scale": known.scale}
    model.constants += [tensor(name, along(values, ndim)) for name, values in steps.items()]
    sub, mul = ("Sub", ["x", "normalise.mean"], [CENTRED]), ("Mul", [CENTRED, "normalise.scale"], [SCALED])
    model.nodes[:0] = [node(*sub), node(*mul)]
    model.values += [named(given, name) for name in (CENTRED, SCALED)]  # a device wants to know how large each value is
    return model.written()


def onnx_model(bundle: Bundle, params: Vector) -> bytes:
    """The network with these parameters, as ONNX."""
    model = OnnxEdit.opened(bundle.forward)
    weights = {WEIGHT + name: array for name, array in bundle.layout.layers(params).items()}
    weights |= {FROZEN + name: array for name, array in bundle.frozen.items()}
    used = [name for value in model.inputs if (name := name_of(value)) in weights]
    model.constants += [tensor(name, weights[name].astype(np.float32, copy=False)) for name in used]
    model.inputs = [value for value in model.inputs if name_of(value) not in weights]
    return model.written()


def _check(data: bytes) -> None:
    """Have the package onnx look at the file, where it is installed: a device has onnxruntime alone, which runs it."""
    if find_spec("onnx") is not None:
        import onnx  # noqa: PLC0415 - as above

        onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
