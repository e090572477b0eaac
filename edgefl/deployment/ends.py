"""The ends of a deployed model: inputs by name and outputs in their own shapes, around a graph from row to row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefl.tasks.fields import Field, Fields, starts, unpack, width
from edgefl.tasks.form import Form
from edgefl.vector import Array

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
    import onnx  # noqa: PLC0415 - only where a model is written: a device runs it without

    model = onnx.load_from_string(data)
    graph = model.graph
    if form.inputs:
        _take(onnx, graph, form.inputs)
    if form.outputs:
        _give(onnx, graph, form.outputs, output_names(form))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _take(onnx: Any, graph: Any, inputs: Fields) -> None:
    """Put the inputs ahead of the graph: each cast and flattened, then one row of all."""
    node, real, nodes = onnx.helper.make_node, onnx.TensorProto.FLOAT, []
    for field in inputs:
        name, flat = field.name, f"{ROW}.{field.name}"
        if field.whole:
            nodes.append(node("Cast", [name], [f"{flat}.real"], to=real))
            graph.value_info.append(_value(onnx, f"{flat}.real", field))
        nodes.append(node("Reshape", [f"{flat}.real" if field.whole else name, f"{flat}.shape"], [flat]))
        graph.value_info.append(_value(onnx, flat, Field("", (field.size,))))
        _constants(onnx, graph, {f"{flat}.shape": [0 if field.shape else -1, field.size]})
    nodes.append(node("Concat", [f"{ROW}.{field.name}" for field in inputs], [ROW], axis=1))
    graph.value_info.append(_value(onnx, ROW, Field("", (width(inputs),))))
    _rename(graph, X, ROW)
    rest = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *rest])
    graph.input.extend(_value(onnx, field.name, field, own=True) for field in inputs)


def _give(onnx: Any, graph: Any, outputs: Fields, names: Sequence[str]) -> None:
    """Cut the row of outputs behind the graph, each in its own shape."""
    node = onnx.helper.make_node
    _rename(graph, Z, LOGITS_ROW)
    del graph.output[:]
    graph.value_info.append(_value(onnx, LOGITS_ROW, Field("", (width(outputs),))))
    for field, start, name in zip(outputs, starts(outputs), names, strict=True):
        bounds = {"start": [start], "end": [start + field.size], "axis": [1], "shape": [0, *field.shape]}
        _constants(onnx, graph, {f"{name}.{word}": numbers for word, numbers in bounds.items()})
        graph.node.append(
            node("Slice", [LOGITS_ROW, *(f"{name}.{w}" for w in ("start", "end", "axis"))], [f"{name}.part"])
        )
        graph.node.append(node("Reshape", [f"{name}.part", f"{name}.shape"], [name]))
        graph.value_info.append(_value(onnx, f"{name}.part", Field("", (field.size,))))
        graph.output.append(_value(onnx, name, field))


def _rename(graph: Any, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]


def _constants(onnx: Any, graph: Any, named: dict[str, list[int]]) -> None:
    for name, numbers in named.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, np.int64), name))


def _value(onnx: Any, name: str, field: Field, *, own: bool = False) -> Any:
    kind = onnx.TensorProto.INT64 if own and field.whole else onnx.TensorProto.FLOAT
    return onnx.helper.make_tensor_value_info(name, kind, ["N", *field.shape])
