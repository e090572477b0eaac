"""Codecs: what the receiver sees is what the sender was told it would see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.base.errors import ConfigError, WireError
from edgefl.wire.codecs import CODECS, FLOAT16_MAX, OURS, codec, described

vectors = arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
every = pytest.mark.parametrize("name", OURS)


@every
@given(v=vectors)
def test_the_receiver_sees_what_the_sender_was_told(name, v):
    payload, seen = codec(name).encode(v)
    back = codec(name).decode(bytes(payload), v.size)
    assert back.dtype == np.float32
    assert back.shape == v.shape
    assert back.tobytes() == seen.tobytes()


@every
@given(v=vectors)
def test_a_lossless_codec_says_so_and_is(name, v):
    if codec(name).lossless:
        assert codec(name).encode(v)[1].tobytes() == v.tobytes()


@every
def test_encoding_leaves_the_vector_alone(name):
    v = np.array([1e6, 0.1], np.float32)
    v.setflags(write=False)
    codec(name).encode(v)
    assert v.tolist() == np.array([1e6, 0.1], np.float32).tolist()


@every
def test_a_vector_with_gaps_travels_like_any_other(name):
    v = np.arange(10, dtype=np.float32)[::2]
    payload, _ = codec(name).encode(v)
    whole, _ = codec(name).encode(v.copy())
    assert bytes(payload) == bytes(whole)
    if name in CODECS:
        assert codec(name).decode(bytes(payload), 5).tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("name", "each"), [("float32", 4), ("float16", 2)])
def test_how_many_bytes_a_number_takes(name, each):
    assert len(codec(name).encode(np.zeros(100, np.float32))[0]) == 100 * each


def test_float32_is_little_endian_on_every_machine():
    assert bytes(codec("float32").encode(np.array([1], np.float32))[0]) == b"\x00\x00\x80\x3f"


def test_float16_brings_large_numbers_to_the_edge_of_its_range():
    v = np.array([1e30, -1e30, 65519], np.float32)
    assert codec("float16").encode(v)[1].tolist() == [FLOAT16_MAX, -FLOAT16_MAX, FLOAT16_MAX]


@given(v=vectors)
def test_float16_is_right_to_three_digits_within_its_range(v):
    v = v[np.abs(v) <= FLOAT16_MAX]
    np.testing.assert_allclose(codec("float16").encode(v)[1], v, rtol=2**-11, atol=2**-25)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    """The coordinator must be able to refuse it."""
    seen = codec("float32").encode(np.array([bad], np.float32))[1]
    assert not np.isfinite(seen).any()
    assert np.isnan(codec("float16").encode(np.array([np.nan], np.float32))[1]).all()


@every
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_payload_of_another_size_is_refused(name, wrong):
    payload = bytes(codec(name).encode(np.zeros(4, np.float32))[0])
    with pytest.raises(WireError) as caught:
        codec(name).decode((payload + b"x")[: len(payload) + wrong], 4)
    assert caught.value.code == "wire.shape"


def test_an_unknown_codec_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"wire.codec = 'float61' is not known; did you mean 'float16'\?"):
        codec("float61")


@pytest.mark.parametrize(
    "table", [{"codec": "float16"}, {"codec": "int8"}, {"codec": "topk", "share": 0.25, "values": "float32"}]
)
def test_a_table_travels_and_becomes_the_same_codec(table):
    assert codec(described(codec(table))) == codec(table)


def test_a_codec_without_parameters_travels_as_its_name():
    assert (described(codec("float16")), described(codec("int8"))) == ("float16", "int8")


def test_an_unknown_parameter_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"wire.up 'topk': unknown key 'shrae'; did you mean 'share'\?"):
        codec({"codec": "topk", "shrae": 0.1}, "wire.up")


def test_a_codec_that_goes_up_only_is_refused_on_the_way_down():
    with pytest.raises(ConfigError, match=r"wire.codec = 'topk' goes up only; choose another for \[wire.down\]"):
        codec("topk", "wire", "down")
