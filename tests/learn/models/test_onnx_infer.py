"""The sizes that a device infers are those that onnxruntime computes."""

import ast
import subprocess
import sys
from pathlib import Path

import changed_graphs
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import defs, helper
from onnx_checker import SMALL, exported
from torch import nn

from edgefl.base.errors import RemoteError
from edgefl.learn.models.onnx.bundle import GRAPHS
from edgefl.learn.models.onnx_backend import TYPES
from edgefl.learn.models.onnx_bindings import Bindings
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.onnx_file import FLOAT, INT64, OnnxGraph, OnnxNode, read_file
from edgefl.learn.models.onnx_infer import infer
from edgefl.learn.models.onnx_rules import OPERATORS
from edgefl.learn.models.onnx_values import ValueType

EXPORTER = Path(__file__).parents[3] / "edgefl" / "learn" / "models" / "onnx"


def computed(graph, inputs):
    """Every value of a graph, as onnxruntime computes it from zeros."""
    model = onnx.load_from_string(graph)
    del model.graph.value_info[:], model.graph.output[:]
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {name: np.zeros(value.shape, TYPES[value.type]) for name, value in inputs.items()}
    feeds |= {n: np.array(v.numbers, TYPES[v.type]).reshape(v.shape) for n, v in inputs.items() if v.numbers}
    return dict(zip(names, session.run(names, feeds), strict=True))


def sizes_agree(bundle, rows):
    bindings = Bindings(bundle, 1 << 30)
    for kind in GRAPHS:
        if data := getattr(bundle, kind):
            signature = bindings.signature(kind, rows)
            known = infer(read_file(data), signature.inputs, set()).values
            for value, array in computed(data, signature.inputs).items():
                assert (known[value].shape, TYPES[known[value].type]) == (array.shape, array.dtype), (kind, value)
                if known[value].numbers is not None:
                    assert list(known[value].numbers) == array.ravel().tolist(), (kind, value)


@pytest.mark.parametrize(("name", "rows"), [*((name, 3) for name in SMALL), ("mlp_bn", 1), ("lstm", 1)])
def test_sizes_are_what_onnxruntime_computes(name, rows):
    sizes_agree(exported(name)[1], rows)


class Picky(nn.Module):
    """What no network of the zoo does: sorting, and several indices at once."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x):
        y = self.layer(x)
        largest = torch.cat([y.topk(2, dim=2)[0], y.sort(1, descending=True)[0], y[:, :, torch.tensor([0, 0])]], 2)
        return largest[torch.arange(x.shape[0])[:, None], torch.tensor([[0, 2]]), 1:].flatten(1)


def test_so_are_those_of_sorting_and_picking():
    sizes_agree(export(Picky(), (4, 6)), 3)


def one_operator(op, *given, **attributes):
    known = {f"i{i}": value for i, value in enumerate(given)}
    return infer(OnnxGraph([OnnxNode(op, tuple(known), ("y",), attributes)]), known, set())


@pytest.mark.parametrize(
    ("op", "given", "attributes"),
    [
        ("TopK", [ValueType(FLOAT, (2, 3)), ValueType(INT64, (1,), (4,))], {"axis": 1}),
        ("TopK", [ValueType(FLOAT, (2, 3)), ValueType(INT64, (1,))], {"axis": 1}),
        ("TopK", [ValueType(FLOAT, (2, 3)), ValueType(INT64, (1,), (0,))], {"axis": 1}),
        ("TopK", [ValueType(FLOAT, (2**14, 2**14)), ValueType(INT64, (1,), (1,))], {"axis": 1}),
        ("GatherND", [ValueType(FLOAT, (2, 3)), ValueType(INT64, (5, 3))], {}),
        ("GatherND", [ValueType(FLOAT, (2, 3)), ValueType(FLOAT, (5, 2))], {}),
        ("GatherND", [ValueType(FLOAT, (2, 3)), ValueType(INT64, (5, 0))], {}),
    ],
)
def test_sorting_and_picking_what_is_not_there_or_for_too_long_is_refused(op, given, attributes):
    with pytest.raises(RemoteError, match=r"operator|one TopK takes"):
        one_operator(op, *given, **attributes)


def test_the_operators_that_are_allowed_are_those_that_the_exporter_writes():
    standard = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    words = {
        part.value
        for path in EXPORTER.glob("*.py")
        for part in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    assert {*OPERATORS, "Scan"} == words & standard


def test_what_is_let_through_has_the_sizes_that_were_inferred_however_it_was_changed():
    command = [sys.executable, changed_graphs.__file__, "7", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    refused, ran = (int(word) for word in done.stdout.split())
    assert refused > 10
    assert ran > 10
