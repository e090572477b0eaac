"""What a device refuses before onnxruntime sees it."""

from contextlib import suppress

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import RemoteError
from edgefl.models.onnx_guard import verify

LIMIT = 2**20


def graph(*nodes, constants=(), known=(), domains=("",)):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        list(nodes), "g", [value("x", TensorProto.FLOAT, ["N", 4])], [value("y", TensorProto.FLOAT, ["N", 4])],
        list(constants), value_info=[value(n, TensorProto.FLOAT, d) for n, d in known],
    )  # fmt: skip
    return helper.make_model(body, opset_imports=[helper.make_opsetid(d, 18) for d in domains], ir_version=8)


def refused(model, limit=LIMIT):
    with pytest.raises(RemoteError) as error:
        verify(model if isinstance(model, bytes) else model.SerializeToString(), batch=10, limit=limit)
    return error.value.code


def test_a_plain_graph_needs_the_memory_of_what_lives_at_one_time():
    nodes = [
        helper.make_node(op, [a], [b]) for op, a, b in [("Relu", "x", "a"), ("Relu", "a", "b"), ("Relu", "b", "y")]
    ]
    model = graph(*nodes, known=[("a", ["N", 4]), ("b", ["N", 4])])
    assert verify(model.SerializeToString(), batch=10, limit=LIMIT) == 3 * 10 * 4 * 4  # x, and two of a, b, y


def test_a_graph_larger_than_allowed_is_refused():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    assert refused(graph(*nodes, known=[("a", ["1000000N", 4])])) == "model.too_large"


def test_a_value_without_a_size_is_refused():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    assert refused(graph(*nodes)) == "model.too_large"
    assert refused(graph(*nodes, known=[("a", ["what", 4])])) == "model.too_large"


def test_a_foreign_operator_is_refused_wherever_it_hides():
    foreign = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    assert refused(graph(foreign)) == "model.domain"
    assert refused(graph(helper.make_node("Relu", ["x"], ["y"]), domains=("", "com.microsoft"))) == "model.domain"
    branch = helper.make_graph([foreign], "b", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    assert (
        refused(graph(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))) == "model.domain"
    )


def test_a_function_of_its_own_is_refused():
    model = graph(helper.make_node("Relu", ["x"], ["y"]))
    model.functions.append(helper.make_function("", "f", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], []))
    assert refused(model) == "model.domain"


def test_data_outside_the_file_is_refused():
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "c")
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
    tensor.data_location = TensorProto.EXTERNAL
    add = helper.make_node("Add", ["x", "c"], ["y"])
    assert refused(graph(add, constants=[tensor])) == "model.external_data"
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    assert refused(graph(constant, add)) == "model.external_data"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    with suppress(RemoteError):
        verify(data, batch=10, limit=LIMIT)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_graph_with_one_byte_changed_is_read_or_refused(place, byte):
    data = bytearray(graph(helper.make_node("Relu", ["x"], ["y"])).SerializeToString())
    data[place % len(data)] = byte
    with suppress(RemoteError):
        verify(bytes(data), batch=10, limit=LIMIT)
