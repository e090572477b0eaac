"""int8 and topk: what they keep, what chance may do, and what a stranger may send."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.base import seeds
from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.wire.codec_int8 import Int8
from edgefl.wire.codec_topk import TopK, largest, pack, unpack
from edgefl.wire.codecs import reader
from edgefl.wire.messages import Tensor
from edgefl.wire.tensors import decode

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
LAYOUT = Layout(("w", "b", "mean"), ((3, 4), (5,), (2,)), buffers=1)
vectors = arrays(np.float32, LAYOUT.size, elements=finite)
small = st.sampled_from([Int8(), TopK(), TopK(share=0.3), TopK(share=1.0, values="float32")])


@given(vectors, small, st.integers(0, 9))
def test_the_receiver_of_a_model_sees_what_the_sender_was_told(v, codec, seed):
    payload, seen = codec.encode(v, LAYOUT, seeds.stream(seed, "codec"))
    assert codec.decode(payload, v.size).tobytes() == seen.tobytes()
    assert len(payload) <= codec.most(LAYOUT)
    assert seen[-2:].tobytes() == v[-2:].tobytes()  # statistics are exact


@given(arrays(np.float32, st.integers(0, 300), elements=finite), small)
def test_any_length_makes_the_way_without_a_layout(v, codec):
    payload, seen = codec.encode(v)
    assert codec.decode(payload, v.size).tobytes() == seen.tobytes()


# ---- int8 ----------------------------------------------------------------------------------------------------------


def test_every_tensor_has_its_own_scale():
    v = np.concatenate([np.full(12, 100.0), np.full(5, 0.001), [7.5, 0.25]]).astype(np.float32)
    np.testing.assert_allclose(Int8().encode(v, LAYOUT)[1], v, rtol=1e-6)


@given(vectors)
def test_without_chance_the_nearest_step_is_taken(v):
    v = np.clip(v, -1e30, 1e30)
    seen = Int8().encode(v, LAYOUT)[1]
    for part in (slice(0, 12), slice(12, 17)):
        step = np.abs(v[part]).max() / 127
        assert np.abs(seen[part] - v[part]).max() <= step * 0.5001 + 1e-40


def test_chance_is_right_on_average():
    v = np.array([1.0, 0.3 / 127, -0.3 / 127], np.float32)
    seen = np.mean([Int8().encode(v, rng=seeds.stream(i, "codec"))[1] for i in range(4000)], axis=0)
    np.testing.assert_allclose(seen * 127, [127, 0.3, -0.3], atol=0.03)
    assert Int8().encode(v)[1].tolist() == [1.0, 0.0, 0.0]


def test_the_same_stream_rounds_the_same_way():
    v = np.linspace(-1, 1, 50, dtype=np.float32)
    first, again, other = (bytes(Int8().encode(v, rng=seeds.stream(7, 3, who, "codec"))[0]) for who in ("a", "a", "b"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", [Int8(), TopK()])
def test_what_is_not_finite_is_not_hidden(codec, bad):
    v = np.linspace(-1, 1, 200, dtype=np.float32)
    v[7] = bad
    values = TopK(values="float32") if isinstance(codec, TopK) else codec
    assert not np.isfinite(values.encode(v)[1]).all()


@pytest.mark.parametrize("v", [np.zeros(5), np.full(5, 1e-45), np.full(5, 3.4e38), np.array([1e-45, 1.0, -1, 0, 0.5])])
def test_the_edges_of_float32_make_no_noise(v):
    seen = Int8().encode(v.astype(np.float32), rng=seeds.stream(1, "codec"))[1]
    assert np.isfinite(seen).all()


# ---- topk ----------------------------------------------------------------------------------------------------------


def test_the_largest_are_kept_and_of_equals_the_first():
    v = np.array([1, -3, 2, 3, -2, 2], np.float32)
    assert largest(v, 3).tolist() == [1, 2, 3]
    assert TopK(share=0.5).encode(v)[1].tolist() == [0, -3, 2, 3, 0, 0]


@given(st.sets(st.integers(0, 5000), max_size=200))
def test_places_come_out_as_they_went_in(places):
    ordered = np.array(sorted(places), np.int64)
    low, packed = pack(ordered)
    assert len(packed) <= 5001 // 8 + 1  # a bitmap is always to be had
    assert unpack(memoryview(packed), len(ordered), low, 5001).tolist() == ordered.tolist()


def test_one_of_a_hundred_costs_about_a_byte_for_its_place():
    v = seeds.stream(3, "v").normal(size=100_000).astype(np.float32)
    payload, seen = TopK(share=0.01).encode(v)
    assert np.count_nonzero(seen) == 1000
    assert len(payload) < 1000 * (2 + 1.05) + 10


def test_half_of_all_is_a_bitmap():
    v = seeds.stream(3, "v").normal(size=8000).astype(np.float32)
    assert len(TopK(share=0.5).encode(v)[0]) == 10 + 1000 + 2 * 4000


# ---- what a stranger may send ----------------------------------------------------------------------------------------


def taken(codec, payload, size):
    """The vector, or None where the payload was refused."""
    try:
        return codec.decode(payload, size)
    except WireError:
        return None


@settings(max_examples=500)
@given(st.sampled_from([Int8(), TopK()]), st.binary(max_size=60), st.integers(0, 200))
def test_whatever_comes_is_a_vector_or_is_refused(codec, payload, size):
    v = taken(codec, payload, size)
    assert v is None or (v.dtype, v.shape) == (np.float32, (size,))


@settings(max_examples=500)
@given(st.sampled_from([Int8(), TopK(share=0.3)]), vectors, st.data())
def test_a_changed_payload_is_a_vector_or_is_refused(codec, v, data):
    payload = bytearray(codec.encode(v, LAYOUT)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    back = taken(codec, bytes(payload), v.size)
    assert back is None or back.shape == v.shape


@pytest.mark.parametrize("kind", ["int8", "topk"])
@pytest.mark.parametrize("size", [1, 2**20, 2**31, 2**40])
@pytest.mark.parametrize("payload", [b"", b"\xff" * 10, bytes(8) + b"\xff" * 4096, bytes(10) + b"\xff" * 4096])
def test_a_claim_of_many_numbers_is_refused_before_memory_is_taken(kind, size, payload):
    """Only the receiver's own number of a model's numbers is believed."""
    tensor = Tensor(name="delta", kind=kind, shape=(size,), bytes=len(payload))
    tracemalloc.start()
    try:
        for sizes in ({}, {"delta": 1000}):
            with pytest.raises(WireError) as caught:
                decode([tensor], memoryview(payload), sizes)
            assert caught.value.code in {"wire.shape", "wire.dtype"}
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kept", "low", "packed"),
    [
        (1000, 20, bytes(2500)),  # places larger than the model, bit by bit
        (1000, 63, b"\xff" * 8000),
        (1000, 255, b"\xff" * 40000),
        (2**32 - 1, 0, b"\xff" * 125),
        (1, 9, b"\xff\xff\xff"),
        (1, 0, b"\x00"),
    ],
)
def test_places_that_no_honest_device_names_are_refused(kept, low, packed):
    head = np.array([kept, 0], "<u4").tobytes() + bytes([low, 1])
    with pytest.raises(WireError):
        reader("topk").decode(head + packed + bytes(2 * min(kept, 1000)), 1000)


@pytest.mark.parametrize("kind", ["int8", "topk"])
def test_what_an_algorithm_adds_never_comes_in_a_few_bytes(kind):
    payload = bytes(reader(kind).encode(np.ones(8, np.float32))[0])
    tensor = Tensor(name="extra/c", kind=kind, shape=(8,), bytes=len(payload))
    with pytest.raises(WireError) as caught:
        decode([tensor], memoryview(payload), {"delta": 8})
    assert caught.value.code == "wire.dtype"
