"""ONNX files written without the package onnx are what that package writes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.delivery.onnx_edit import OnnxEdit, name_of, named, node, tensor, value


def file() -> onnx.ModelProto:
    """A graph with attributes of several kinds, a body, sizes that go with the batch, and things said beside it."""
    real, step = TensorProto.FLOAT, helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"])],
        "body",
        [step("state", real, [3]), step("row", real, [3])],
        [step("next", real, [3])],
    )
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], alpha=0.5, transB=1),
        helper.make_node("Scan", ["zero", "h"], ["end"], body=body, num_scan_inputs=1, scan_input_axes=[-1]),
        helper.make_node("Identity", ["x"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [step("x", real, ["N", 3]), step("w", real, [3, 3])],
        [step("logits", real, ["N", 3])],
        initializer=[numpy_helper.from_array(np.zeros(3, np.float32), "zero")],
        value_info=[step("h", real, ["N", 3])],
        doc_string="said",
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="another")


def test_what_is_not_changed_stays_as_it_is() -> None:
    assert onnx.load_from_string(OnnxEdit.opened(file().SerializeToString()).written()) == file()


@pytest.mark.parametrize("array", [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.array([0, -1], np.int64)])
def test_a_constant(array: np.ndarray) -> None:
    assert TensorProto.FromString(tensor("w", array)) == numpy_helper.from_array(np.ascontiguousarray(array), "w")


def test_a_node_and_what_is_said_about_a_value() -> None:
    expected = helper.make_node("Concat", ["a", "b"], ["c"], axis=-1)
    assert onnx.NodeProto.FromString(node("Concat", ["a", "b"], ["c"], axis=-1)) == expected
    said = value("h", TensorProto.INT64, ["N", 300])
    assert onnx.ValueInfoProto.FromString(said) == helper.make_tensor_value_info("h", TensorProto.INT64, ["N", 300])
    assert name_of(named(said, "other")) == "other"


def test_names_are_changed_where_nodes_read_them_and_where_they_write_them() -> None:
    edit = OnnxEdit.opened(file().SerializeToString())
    edit.rename("x", "y", reads_alone=True)
    edit.rename("h", "hidden")
    nodes = onnx.load_from_string(edit.written()).graph.node
    assert [list(one.input) for one in nodes] == [["y", "w"], ["zero", "hidden"], ["y"]]
    assert [list(one.output) for one in nodes] == [["hidden"], ["end"], ["logits"]]
    assert nodes[0].attribute == file().graph.node[0].attribute


def test_what_the_file_says_about_itself_replaces_what_it_said_before() -> None:
    edit = OnnxEdit.opened(file().SerializeToString())
    for facts in ({"old": "1"}, {"name": "äöü", "classes": "3"}):
        edit.describe("run", ("edgefl", "0.1"), 300, facts)
    model = onnx.load_from_string(edit.written())
    assert {one.key: one.value for one in model.metadata_props} == {"name": "äöü", "classes": "3"}
    assert (model.producer_name, model.producer_version, model.model_version) == ("edgefl", "0.1", 300)
    assert model.graph.name == "run"
    assert model.opset_import == file().opset_import
