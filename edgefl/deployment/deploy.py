"""The trained model as one ordinary ONNX file: weights inside, `x` in, `logits` out, any batch size."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from edgefl import __version__
from edgefl.deployment.ends import named_ends, on_rows
from edgefl.errors import RunError
from edgefl.models.base import Model
from edgefl.models.normalised import Normalised, along
from edgefl.models.onnx.bundle import Bundle
from edgefl.system.store import write_atomically
from edgefl.tasks.form import PLAIN, Form
from edgefl.vector import Array, Vector

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
    gap = difference(data, model, params, x, form)
    if not gap <= TOLERANCE:
        raise RunError(f"{path}: the exported model differs from the trained one by {gap:.1e}; it was not written")
    write_atomically(path, data, private=private)
    return gap


def with_card(data: bytes, facts: Mapping[str, str]) -> bytes:
    """The same model with these facts in its metadata (`edgefl.deployment.card`)."""
    model = onnx.load_from_string(data)
    model.producer_name, model.producer_version = "edgefl", __version__
    model.model_version = int(facts.get("rounds", 0))
    model.graph.name = facts.get("name", "model")
    helper.set_model_props(model, dict(sorted(facts.items())))
    return bytes(model.SerializeToString())


def difference(data: bytes, model: Model, params: Vector, x: Array, form: Form = PLAIN) -> float:
    """How far the outputs of the file are from the model's, relative to the largest of them."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    got = on_rows(session, form, x)
    expected = model.logits(params, x)
    return float(np.abs(got - expected).max() / max(1e-12, np.abs(expected).max()))


def on_raw_units(data: bytes, known: Normalised, ndim: int) -> bytes:
    """The same model with its samples normalised inside: (x - mean) * scale, before anything else."""
    model = onnx.load_from_string(data)
    graph, (given,) = model.graph, [value for value in model.graph.input if value.name == "x"]
    for node in graph.node:
        node.input[:] = [SCALED if name == "x" else name for name in node.input]
    steps = {"normalise.mean": known.mean, "normalise.scale": known.scale}
    for name, values in steps.items():
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(along(values, ndim)), name))
    graph.node.insert(0, helper.make_node("Mul", [CENTRED, "normalise.scale"], [SCALED]))
    graph.node.insert(0, helper.make_node("Sub", ["x", "normalise.mean"], [CENTRED]))
    for name in (CENTRED, SCALED):  # a device wants to know how large each value is
        sized = onnx.ValueInfoProto()
        sized.CopyFrom(given)
        sized.name = name
        graph.value_info.append(sized)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def onnx_model(bundle: Bundle, params: Vector) -> bytes:
    """The network with these parameters, as ONNX."""
    model = onnx.load_from_string(bundle.forward)
    weights = {WEIGHT + name: tensor for name, tensor in bundle.layout.layers(params).items()}
    weights |= {FROZEN + name: tensor for name, tensor in bundle.frozen.items()}
    used = [value for value in model.graph.input if value.name in weights]
    for value in used:
        tensor = np.ascontiguousarray(weights[value.name], np.float32)
        model.graph.initializer.append(numpy_helper.from_array(tensor, value.name))
        model.graph.input.remove(value)
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data
