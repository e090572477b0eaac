"""Graphs changed at random: what the guard lets through, onnxruntime computes with the sizes that were inferred.

As a program, because nobody knows what a kernel does with a graph that nobody meant: `changed_graphs.py SEED COUNT`
prints how many were refused, and how many ran. More of it finds more.
"""

import random
import sys
from collections import Counter
from copy import deepcopy

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, helper, numpy_helper
from onnx_checker import exported

from edgefl.base.errors import RemoteError
from edgefl.learn.models.onnx.bundle import GRAPHS
from edgefl.learn.models.onnx_backend import TYPES
from edgefl.learn.models.onnx_bindings import Bindings
from edgefl.learn.models.onnx_file import read_file
from edgefl.learn.models.onnx_infer import infer

NAMES = ("cnn_small", "lstm")
NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 8, -2, 16, 2**31, 2**62)
OPERATORS = ("Relu", "Gather", "GatherElements", "MatMul", "Expand", "Tile", "Slice", "Reshape", "MaxPool", "Concat")
MOST = 200 << 20  # bytes of all values of a graph that is run


def change(model: ModelProto, rng: random.Random) -> None:
    """One thing that the exporter did not write: another number, another input, another operator."""
    graph = model.graph
    node, tensors = rng.choice(graph.node), [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT64]
    kind = rng.random()
    if kind < 0.4 and tensors:
        tensor = rng.choice(tensors)
        array = numpy_helper.to_array(tensor).copy()
        if array.size:
            array.flat[rng.randrange(array.size)] = rng.choice(NUMBERS)
        if array.ndim == 1 and rng.random() < 0.2:
            array = array[:-1]
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    elif kind < 0.65 and node.attribute:
        attribute = rng.choice(node.attribute)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        else:
            attribute.i = rng.choice(NUMBERS)
    elif kind < 0.85:
        names = [*(o for n in graph.node for o in n.output), *(v.name for v in (*graph.input, *graph.initializer))]
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    else:
        node.op_type = rng.choice((*OPERATORS, *(n.op_type for n in graph.node)))


def outcome(model: ModelProto, inputs: dict) -> str:
    """`refused`, `ran`, or `failed` where onnxruntime noticed something that depends on data."""
    del model.graph.value_info[:]
    data = model.SerializeToString()
    try:
        known = infer(read_file(data), inputs, set()).values
    except RemoteError:
        return "refused"
    if sum(value.bytes for value in known.values()) > MOST:
        return "large"
    names = [name for node in model.graph.node for name in node.output]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        asked = {i.name for i in session.get_inputs()}
        feeds = {n: _filled(value) for n, value in inputs.items() if n in asked}
        arrays = session.run(names, feeds)
    except Exception:  # noqa: BLE001 - onnxruntime's errors have no class of their own
        return "failed"
    for name, array in zip(names, arrays, strict=True):
        value = known[name]
        assert (value.shape, np.dtype(TYPES[value.type])) == (array.shape, array.dtype), name
        assert value.numbers is None or list(value.numbers) == array.ravel().tolist(), name
    return "ran"


def _filled(value):
    content = np.zeros(value.shape, TYPES[value.type])
    return content if value.numbers is None else np.array(value.numbers, content.dtype).reshape(value.shape)


def main(seed: int, count: int) -> None:
    rng, pool = random.Random(seed), []
    for name in NAMES:
        bundle = exported(name)[1]
        bindings = Bindings(bundle, 1 << 30)
        for kind in (k for k in GRAPHS if getattr(bundle, k)):
            inputs = bindings.signature(kind, 3).inputs
            pool.append((onnx.load_from_string(getattr(bundle, kind)), inputs))
    seen: Counter[str] = Counter()
    for _ in range(count):
        model, inputs = rng.choice(pool)
        changed = deepcopy(model)
        change(changed, rng)
        seen[outcome(changed, inputs)] += 1
    print(seen["refused"], seen["ran"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
