"""Named arrays in a frame's body."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pydantic import ValidationError

from edgefl.base.errors import WireError
from edgefl.wire.codecs import CODECS
from edgefl.wire.messages import Tensor
from edgefl.wire.tensors import decode, encode

FLOAT32 = CODECS["float32"]
dtypes = st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1", "|b1", ">f8", ">i4"])
states = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Cn", "Zl", "Zp"]), max_size=10),
    dtypes.flatmap(lambda d: arrays(d, array_shapes(min_dims=0, min_side=0, max_side=4))),
    max_size=4,
)


def tensor(name="a", kind="float32", shape=(2,), size=None, dtype="<f4"):
    return Tensor(name=name, kind=kind, dtype=dtype, shape=shape, bytes=8 if size is None else size)


def code(tensors, body):
    with pytest.raises(WireError) as caught:
        decode(tensors, memoryview(body))
    return caught.value.code


@given(states)
def test_arrays_come_out_as_they_went_in(state):
    described, parts, _ = encode(state, FLOAT32)
    back = decode(described, memoryview(b"".join(parts)))
    assert list(back) == list(state)
    for name, array in state.items():
        assert back[name].shape == array.shape
        np.testing.assert_array_equal(back[name], array)


@given(states, st.sampled_from(sorted(CODECS)))
def test_the_receiver_sees_what_the_sender_was_told(state, name):
    with np.errstate(all="ignore"):
        described, parts, seen = encode(state, CODECS[name])
    back = decode(described, memoryview(b"".join(parts)))
    for key in state:
        np.testing.assert_array_equal(back[key], seen[key])


def test_only_float32_goes_through_the_codec():
    state = {"w": np.full(3, 0.1, np.float32), "exact": np.full(3, 0.1), "count": np.arange(3)}
    described, _, seen = encode(state, CODECS["float16"])
    assert [t.kind for t in described] == ["float16", "raw", "raw"]
    assert seen["exact"].tolist() == [0.1] * 3
    assert seen["w"].tolist() != state["w"].tolist()


@pytest.mark.parametrize("array", [np.array(["word"]), np.array([None]), np.array([1j])])
def test_words_and_objects_do_not_travel(array):
    with pytest.raises(ValueError, match=r"'x' is .*, which does not travel"):
        encode({"x": array}, FLOAT32)


# ---- what a stranger may send --------------------------------------------------------------------------------------


def test_a_body_cut_at_any_byte_is_truncated():
    described, parts, _ = encode({"a": np.zeros(3, np.float32), "b": np.zeros(2)}, FLOAT32)
    body = b"".join(parts)
    assert {code(described, body[:length]) for length in range(len(body))} == {"wire.truncated"}


def test_bytes_that_belong_to_no_tensor_are_refused():
    assert code([tensor()], bytes(9)) == "wire.truncated"
    assert code([], b"x") == "wire.truncated"


def test_a_tensor_that_comes_twice_is_refused():
    assert code([tensor(), tensor()], bytes(16)) == "wire.malformed"


@pytest.mark.parametrize(
    ("kind", "dtype"), [("raw", "bfloat16"), ("raw", "|O"), ("raw", "<U4"), ("raw", "<c8"), ("pickle", "<f4")]
)
def test_a_type_that_does_not_travel_is_refused(kind, dtype):
    assert code([tensor(kind=kind, dtype=dtype)], bytes(8)) == "wire.dtype"


@pytest.mark.parametrize("kind", ["float32", "float16", "raw"])
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (0,)])
def test_a_shape_that_does_not_fit_its_bytes_is_refused(kind, shape):
    assert code([tensor(kind=kind, shape=shape)], bytes(8)) == "wire.shape"


@pytest.mark.parametrize("kind", ["float32", "float16", "raw"])
@pytest.mark.parametrize("shape", [(2**40,), (2**40, 2**40), (2**33, 2**31)])
def test_a_shape_of_terabytes_is_refused_by_its_arithmetic(kind, shape):
    assert code([tensor(kind=kind, shape=shape)], bytes(8)) in {"wire.too_large", "wire.shape"}


@pytest.mark.parametrize("kind", ["float32", "raw"])
def test_a_shape_that_numpy_cannot_count_is_refused_even_when_it_is_empty(kind):
    assert code([tensor(kind=kind, shape=(0, 2**40, 2**40), size=0)], b"") == "wire.shape"


@pytest.mark.parametrize(
    "bad", [{"shape": (1,) * 17}, {"shape": (-1,)}, {"shape": (2**41,)}, {"size": -1}, {"name": "x" * 201}]
)
def test_numbers_out_of_bounds_are_refused_at_the_door(bad):
    with pytest.raises(ValidationError):
        tensor(**bad)


@pytest.mark.parametrize("bad", ["two\nlines", "ends\n", "a\x00", "\u202eright to left", "\u2028", "é" * 201])
def test_a_tensors_name_is_one_line_of_at_most_200_characters(bad):
    assert tensor(name="é" * 200).name == "é" * 200
    assert tensor(name="").name == ""
    with pytest.raises(ValidationError):
        tensor(name=bad)


@given(
    st.lists(
        st.builds(
            tensor,
            name=st.sampled_from("ab"),
            kind=st.sampled_from(["float32", "float16", "raw", "other"]),
            shape=st.lists(st.integers(0, 2**40), max_size=16).map(tuple),
            size=st.integers(0, 20),
            dtype=st.sampled_from(["<f4", "|u1", "|O"]),
        ),
        max_size=3,
    ),
    st.binary(max_size=40),
)
def test_whatever_is_described_is_decoded_or_refused(tensors, body):
    try:
        decoded = decode(tensors, memoryview(body))
    except WireError:
        return
    assert sum(t.bytes for t in tensors) == len(body)
    assert len(decoded) == len(tensors)
