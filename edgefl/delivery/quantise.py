"""Eight-bit weights for a deployed model: a quarter of the size, and faster where matrix products dominate.

Only matrix products are quantised, their inputs at run time: dynamic int8 convolutions are several times slower than
float ones. The result keeps to standard operators and says how large each value is, so that a device accepts it.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference


def quantised(data: bytes) -> bytes:
    """The same model with int8 weights in its matrix products."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - slow, and rarely wanted

    model = onnx.load_from_string(data)
    fold_transposes(model)
    weights_last(model)
    sizes = {value.name: value for value in model.graph.value_info}
    del model.graph.value_info[:]  # the quantiser trips over sizes it did not infer itself
    quiet, log = logging.WARNING, logging.getLogger()
    before = log.level
    with TemporaryDirectory(prefix="edgefl-int8-") as folder:
        path = Path(folder) / "model.onnx"
        log.setLevel(max(before, quiet + 1))  # it advises a preprocessing that we have done
        try:
            quantize_dynamic(model, path, op_types_to_quantize=["MatMul", "Gemm"], weight_type=QuantType.QInt8)
        finally:
            log.setLevel(before)
        int8_model = onnx.load(path)
    _keep_standard(int8_model)
    del int8_model.graph.value_info[:]  # what it inferred does not know that sizes go with the batch; ours do
    written = {name for node in int8_model.graph.node for name in node.output}
    int8_model.graph.value_info.extend(value for name, value in sizes.items() if name in written)
    sized = shape_inference.infer_shapes(int8_model, strict_mode=True)
    onnx.checker.check_model(sized, full_check=True)
    return bytes(sized.SerializeToString())


def fold_transposes(model: ModelProto) -> None:
    """Weights that are transposed before use are stored so: the quantiser only sees constants."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "Transpose" and n.input[0] in constants]:
        array = numpy_helper.to_array(constants[node.input[0]])
        turned = np.ascontiguousarray(np.transpose(array, _order(node)))
        graph.initializer.append(numpy_helper.from_array(turned, node.output[0]))
        graph.node.remove(node)
    used = set(_read(graph))
    _drop(graph.initializer, (t for t in list(graph.initializer) if t.name not in used))
    folded = {tensor.name for tensor in graph.initializer}
    _drop(graph.value_info, (v for v in list(graph.value_info) if v.name in folded))


def weights_last(model: ModelProto) -> None:
    """A product whose left factor are weights is multiplied the other way round: the quantiser looks at the right one.

    Large dense layers come like that (edgefl/learn/models/onnx/operators_relu.py), with their bias as a column.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    columns = {n.output[0]: n for n in graph.node if n.op_type == "Reshape" and n.input[0] in constants}
    nodes: list[NodeProto] = []
    for node in graph.node:
        left, *rest = node.input
        turns = node.op_type == "Gemm" and left in constants and rest[0] not in constants
        if not turns or not all(name in columns for name in rest[1:]):
            nodes.append(node)
            continue
        about = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        about |= {"transA": 1 - about.get("transB", 0), "transB": 1 - about.get("transA", 0)}
        rows = [columns[name].input[0] for name in rest[1:]]
        turned = f"{node.output[0]}/turned"
        nodes.append(helper.make_node("Gemm", [rest[0], left, *rows], [turned], **about))
        nodes.append(helper.make_node("Transpose", [turned], list(node.output), perm=[1, 0]))
    read = {name for node in nodes for name in node.input}
    del graph.node[:]
    graph.node.extend(node for node in nodes if node.output[0] not in columns or node.output[0] in read)


def _read(graph: GraphProto) -> Iterator[str]:
    """Every name that the graph reads, bodies of loops included."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read(attribute.g)


def _order(node: NodeProto) -> list[int] | None:
    return next((list(a.ints) for a in node.attribute if a.name == "perm"), None)


def _keep_standard(model: ModelProto) -> None:
    """The quantiser announces operators of its own, whether it uses them or not."""
    used = {node.domain for node in model.graph.node}
    _drop(model.opset_import, (o for o in list(model.opset_import) if o.domain and o.domain not in used))


def _drop(things: "list[TensorProto]", unwanted: Iterable[TensorProto]) -> None:
    for thing in unwanted:
        things.remove(thing)
