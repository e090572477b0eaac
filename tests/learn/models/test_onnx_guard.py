"""What a device refuses before onnxruntime sees it."""

from contextlib import suppress

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgefl.base.errors import RemoteError
from edgefl.learn.models.onnx_file import FLOAT, INT64, read_file
from edgefl.learn.models.onnx_guard import verify, verify_own
from edgefl.learn.models.onnx_values import ValueType

LIMIT = 2**20
GIVEN = {"x": ValueType(FLOAT, (10, 4)), "i": ValueType(INT64, (10, 4))}
node, value = helper.make_node, helper.make_tensor_value_info


def graph(*nodes, constants=(), known=(), domains=("",), y=("N", 4), inputs=(("x", TensorProto.FLOAT, ("N", 4)),)):
    body = helper.make_graph(
        list(nodes), "g", [value(*i) for i in inputs], [value("y", TensorProto.FLOAT, y)],
        list(constants), value_info=[value(n, TensorProto.FLOAT, d) for n, d in known],
    )  # fmt: skip
    return helper.make_model(body, opset_imports=[helper.make_opsetid(d, 18) for d in domains], ir_version=8)


def accepted(model, limit=LIMIT):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return verify(read_file(data), GIVEN, (), batch=10, limit=limit)


def refused(model, limit=LIMIT):
    with pytest.raises(RemoteError) as error:
        accepted(model, limit)
    return error.value.code


def whole(name, *numbers):
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def test_a_plain_graph_needs_the_memory_of_what_lives_at_one_time():
    chain = [node(op, [a], [b]) for op, a, b in [("Relu", "x", "a"), ("Relu", "a", "b"), ("Relu", "b", "y")]]
    offered = 10 * 4 * 4 + 10 * 4 * 8  # x, and i, whether it is asked for or not
    assert accepted(graph(*chain)).need == offered + 3 * 10 * 4 * 4  # and y, which is ours, and a and b


def test_a_graph_larger_than_allowed_is_refused():
    large = [node("ConstantOfShape", ["s"], ["a"]), node("ReduceMean", ["a", "all"], ["m"], keepdims=0)]
    sums = [*large, node("Add", ["x", "m"], ["y"])]
    constants = [whole("s", 1000, 1000), whole("all", 0, 1)]
    assert refused(graph(*sums, constants=constants)) == "model.too_large"
    assert accepted(graph(*sums, constants=constants), limit=8 * LIMIT).need > 4_000_000


def test_what_the_file_says_of_a_size_is_compared_and_never_believed():
    nodes = [node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["y"])]
    assert accepted(graph(*nodes)).outputs["y"].shape == (10, 4)
    assert accepted(graph(*nodes, known=[("a", ["N", 4])]))
    assert refused(graph(*nodes, known=[("a", ["N", 1])])) == "model.shape"
    assert refused(graph(*nodes, known=[("a", ["what", 4])])) == "model.shape"
    assert refused(graph(*nodes, y=("N", 5))) == "model.binding"
    assert refused(graph(*nodes, y=("2N", 4))) == "model.binding"


def test_a_size_that_depends_on_data_is_refused():
    filled = [node("Gather", ["i", "zero"], ["row"], axis=0), node("ConstantOfShape", ["row"], ["y"])]
    inputs = (("i", TensorProto.INT64, ("N", 4)),)
    zero = numpy_helper.from_array(np.array(0), "zero")
    assert refused(graph(*filled, constants=[zero], inputs=inputs, y=None)) == "model.shape"


def test_only_what_is_given_can_be_asked_for():
    relu = node("Relu", ["x"], ["y"])
    assert refused(graph(relu, inputs=(("x", TensorProto.FLOAT, ("N", 5)),))) == "model.binding"
    assert refused(graph(relu, inputs=(("x", TensorProto.DOUBLE, ("N", 4)),))) == "model.binding"
    assert refused(graph(relu, inputs=(("x", TensorProto.FLOAT, None),))) == "model.binding"
    assert refused(graph(node("Relu", ["z"], ["y"]), inputs=(("z", TensorProto.FLOAT, ("N", 4)),))) == "model.binding"
    twice = (("x", TensorProto.FLOAT, ("N", 4)),) * 2
    assert refused(graph(relu, inputs=twice)) == "model.binding"
    assert refused(graph(node("Relu", ["i"], ["y"]))) == "model.shape"  # given, but not asked for
    assert refused(graph(relu, node("Relu", ["x"], ["y"]))) == "model.shape"  # the same name twice


@pytest.mark.parametrize("op", ["If", "Loop", "SequenceMap", "NonZero", "Constant", "Mod", "RandomNormal", "Optional"])
def test_an_operator_that_the_exporter_never_writes_is_refused(op):
    assert refused(graph(node(op, ["x"], ["y"]))) == "model.operator"


def test_a_loop_is_counted_with_its_body():
    body = helper.make_graph(
        [node("ConstantOfShape", ["s"], ["big"]), node("ReduceMean", ["big", "all"], ["m"], keepdims=0),
         node("Add", ["step", "m"], ["out"])],
        "b", [value("step", TensorProto.FLOAT, None)], [value("out", TensorProto.FLOAT, None)],
        [whole("s", 1000, 1000), whole("all", 0, 1)],
    )  # fmt: skip
    assert refused(graph(node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1))) == "model.too_large"
    del body.node[0], body.node[0]
    body.node[0].input[1] = "step"
    assert accepted(graph(node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)))
    body.node[0].op_type = "Loop"
    assert refused(graph(node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1))) == "model.operator"


def test_whole_numbers_are_not_divided_by_what_may_be_zero():
    inputs = (("i", TensorProto.INT64, ("N", 4)),)
    cast = node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)
    assert refused(graph(node("Div", ["i", "i"], ["q"]), cast, inputs=inputs)) == "model.shape"
    assert (
        refused(graph(node("Div", ["i", "c"], ["q"]), cast, inputs=inputs, constants=[whole("c", 0)])) == "model.shape"
    )
    assert accepted(graph(node("Div", ["i", "c"], ["q"]), cast, inputs=inputs, constants=[whole("c", 2)]))


def test_one_operator_must_not_take_for_ever():
    nodes = [
        node("ReduceMean", ["x", "all"], ["a"]), node("Expand", ["a", "s"], ["b"]), node("MatMul", ["b", "b"], ["c"]),
        node("ReduceMean", ["c", "all"], ["m"]), node("Add", ["x", "m"], ["y"]),
    ]  # fmt: skip
    constants = [whole("all", 0, 1), whole("s", 8192, 8192)]
    assert refused(graph(*nodes, constants=constants), limit=1 << 40) == "model.too_long"


def test_a_flag_that_is_neither_yes_nor_no_is_refused():
    def kept(flag):
        rows = node("ReduceSum", ["x", "first"], ["s"], keepdims=flag)
        return graph(rows, node("Add", ["x", "s"], ["y"]), constants=[whole("first", 0)])

    assert accepted(kept(0))
    assert accepted(kept(1))
    assert refused(kept(3)) == "model.shape"  # onnxruntime takes it for no, others may not


def test_sizes_of_nothing_are_followed_too():
    nothing = [
        node("Mul", ["none", "two"], ["s"]),
        node("ConstantOfShape", ["s"], ["c"]),
        node("Add", ["x", "c"], ["y"]),
    ]
    none = numpy_helper.from_array(np.empty(0, np.int64), "none")
    assert refused(graph(*nothing, constants=[none, whole("two", 2)])) == "model.shape"


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


def test_what_two_readers_could_read_in_two_ways_is_refused():
    plain = graph(node("Relu", ["x"], ["y"])).SerializeToString()
    assert accepted(plain)
    assert refused(plain + bytes([0x3A, 0])) == "model.malformed"  # a second graph: some readers merge the two
    assert refused(plain + bytes([0x08, 8])) == "model.malformed"  # a version again
    assert refused(plain + bytes([0xF2, 0x06, 0])) == "model.malformed"  # a field that nobody knows
    assert refused(plain + bytes([0x0B])) == "model.malformed"  # a group
    assert refused(plain + bytes([0x22, 0x80])) == "model.malformed"  # a length that does not end


def test_a_file_of_many_small_fields_is_refused_before_they_become_objects():
    plain = graph(node("Relu", ["x"], ["y"]))
    assert refused(plain.SerializeToString() + bytes([0x72, 0]) * 200_000) == "model.malformed"  # of the file
    many = graph(node("Relu", ["x"], ["y"]))
    many.graph.doc_string = "x" * (9 << 20)
    assert refused(many) == "model.malformed"
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[1] * 200_000, raw_data=bytes(4))
    assert refused(graph(node("Relu", ["x"], ["y"]), constants=[tensor])) == "model.malformed"


def test_a_file_of_ones_own_may_use_any_standard_operator_and_must_say_its_sizes():
    nodes = [node("Mod", ["x", "x"], ["a"], fmod=1), node("Relu", ["a"], ["y"])]
    own_file = graph(*nodes, known=[("a", ["N", 4])]).SerializeToString()
    assert verify_own(own_file, batch=10, limit=LIMIT) == 3 * 10 * 4 * 4
    for bad in (graph(*nodes), graph(*nodes, known=[("a", ["1000000N", 4])])):
        with pytest.raises(RemoteError) as error:
            verify_own(bad.SerializeToString(), batch=10, limit=LIMIT)
        assert error.value.code == "model.too_large"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    with suppress(RemoteError):
        accepted(data)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_graph_with_one_byte_changed_is_read_or_refused(place, byte):
    chain = node("Slice", ["x", "a", "b", "c", "d"], ["z"]), node("Gemm", ["z", "z"], ["y"], transB=1)
    constants = [whole("a", 0), whole("b", 2**62), whole("c", 0), whole("d", 1)]
    data = bytearray(graph(*chain, constants=constants).SerializeToString())
    data[place % len(data)] = byte
    with suppress(RemoteError):
        accepted(bytes(data))
