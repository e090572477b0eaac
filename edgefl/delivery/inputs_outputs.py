"""The ends of a deployed model: inputs by name and outputs in their own shapes, around a graph from row to row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefl.base.vector import Array
from edgefl.delivery.onnx_edit import OnnxEdit, node, tensor, value
from edgefl.learn.models.onnx_file import FLOAT, INT64
from edgefl.learn.tasks.fields import Field, Fields, starts, unpack, width
from edgefl.learn.tasks.form import Form

X, Z = "x", "logits"  # what the graph in between takes and gives
ROW, LOGITS_ROW = "x.row", "logits.row"  # the same inside a file that has ends of its own


def input_names(form: Form) -> tuple[str, ...]:
    """What such a file takes."""
    return tuple(field.name for field in form.inputs) or (X,)


def output_names(form: Form) -> tuple[str, ...]:
    """What it gives; one output without a name is called as ever."""
    taken = input_names(form)
    return tuple(f"{f.name}_output" if f.name in taken else f.name or Z for f in form.outputs) or (Z,)


def on_rows(session: Any, form: Form, x: Array) -> Array:
    """The rows of outputs for rows of samples; Any: a session of onnxruntime, which has no types."""
    feeds = unpack(form.inputs, x) if form.inputs else {X: x}
    given = session.run(list(output_names(form)), {name: np.ascontiguousarray(one) for name, one in feeds.items()})
    return np.asarray(given[0]) if not form.outputs else np.concatenate([z.reshape(len(x), -1) for z in given], axis=1)


def named_ends(data: bytes, form: Form) -> bytes:
    """The same model with its own inputs and outputs; of a plain task it stays as it is."""
    if not form.inputs and not form.outputs:
        return data
    model = OnnxEdit.opened(data)
    if form.inputs:
        _take(model, form.inputs)
    if form.outputs:
        _give(model, form.outputs, output_names(form))
    return model.written()


def _take(model: OnnxEdit, inputs: Fields) -> None:
    """Put the inputs ahead of the graph: each cast and flattened, then one row of all."""
    nodes = []
    for field in inputs:
        name, flat = field.name, f"{ROW}.{field.name}"
        if field.whole:
            nodes.append(node("Cast", [name], [f"{flat}.real"], to=FLOAT))
            model.values.append(_value(f"{flat}.real", field))
        nodes.append(node("Reshape", [f"{flat}.real" if field.whole else name, f"{flat}.shape"], [flat]))
        model.values.append(_value(flat, Field("", (field.size,))))
        _constants(model, {f"{flat}.shape": [0 if field.shape else -1, field.size]})
    nodes.append(node("Concat", [f"{ROW}.{field.name}" for field in inputs], [ROW], axis=1))
    model.values.append(_value(ROW, Field("", (width(inputs),))))
    model.rename(X, ROW)
    model.nodes[:0] = nodes
    model.inputs = [_value(field.name, field, own=True) for field in inputs]


def _give(model: OnnxEdit, outputs: Fields, names: Sequence[str]) -> None:
    """Cut the row of outputs behind the graph, each in its own shape."""
    model.rename(Z, LOGITS_ROW)
    model.outputs.clear()
    model.values.append(_value(LOGITS_ROW, Field("", (width(outputs),))))
    for field, start, name in zip(outputs, starts(outputs), names, strict=True):
        bounds = {"start": [start], "end": [start + field.size], "axis": [1], "shape": [0, *field.shape]}
        _constants(model, {f"{name}.{word}": numbers for word, numbers in bounds.items()})
        cut = [LOGITS_ROW, *(f"{name}.{w}" for w in ("start", "end", "axis"))]
        model.nodes.append(node("Slice", cut, [f"{name}.part"]))
        model.nodes.append(node("Reshape", [f"{name}.part", f"{name}.shape"], [name]))
        model.values.append(_value(f"{name}.part", Field("", (field.size,))))
        model.outputs.append(_value(name, field))


def _constants(model: OnnxEdit, numbers: dict[str, list[int]]) -> None:
    model.constants += [tensor(name, np.array(one, np.int64)) for name, one in numbers.items()]


def _value(name: str, field: Field, *, own: bool = False) -> bytes:
    return value(name, INT64 if own and field.whole else FLOAT, ["N", *field.shape])
