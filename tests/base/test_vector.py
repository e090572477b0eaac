"""A model is one flat vector; a layout says which numbers are which tensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.vector import Layout, check, dot, norm

LAYOUT = Layout(("weight", "bias", "mean"), ((2, 3), (3,), ()), buffers=1)
shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5).map(tuple)


def test_slices_follow_one_another_and_cover_the_vector():
    assert list(LAYOUT) == [slice(0, 6), slice(6, 9), slice(9, 10)]
    assert LAYOUT.size == 10


def test_statistics_stand_at_the_end_and_are_not_trained():
    assert LAYOUT.trainable == 9


@pytest.mark.parametrize(("buffers", "trainable"), [(0, 10), (1, 9), (2, 6), (3, 0)])
def test_what_is_trained_ends_where_the_buffers_begin(buffers, trainable):
    assert Layout(LAYOUT.names, LAYOUT.shapes, buffers).trainable == trainable


def test_an_empty_layout_is_a_layout():
    nothing = Layout((), ())
    assert (nothing.size, nothing.trainable, nothing.layers(np.zeros(0, np.float32))) == (0, 0, {})


def test_writing_to_a_layer_writes_to_the_vector():
    w = np.zeros(10, np.float32)
    LAYOUT.layers(w)["bias"][1] = 5
    assert w.tolist() == [0, 0, 0, 0, 0, 0, 0, 5, 0, 0]


@given(shapes)
def test_flattening_the_layers_gives_the_vector_back(shapes):
    layout = Layout(tuple(f"t{i}" for i in range(len(shapes))), shapes)
    w = np.arange(layout.size, dtype=np.float32)
    back = layout.flatten(layout.layers(w))
    assert back.dtype == np.float32
    assert np.array_equal(back, w)


def test_a_tensor_of_another_size_does_not_flatten():
    with pytest.raises(ValueError, match="vector of 10 numbers"):
        LAYOUT.flatten({"weight": np.zeros(7), "bias": np.zeros(3), "mean": np.zeros(())})


def test_layouts_with_the_same_names_and_shapes_are_equal():
    assert Layout(("a",), ((2,),)) == Layout(("a",), ((2,),))
    assert Layout(("a",), ((2,),)) != Layout(("a",), ((2,),), buffers=1)


@pytest.mark.parametrize(
    ("names", "shapes", "buffers"), [(("a", "a"), ((1,), (1,)), 0), (("a",), (), 0), (("a",), ((1,),), 2)]
)
def test_a_layout_that_contradicts_itself_is_refused(names, shapes, buffers):
    with pytest.raises(ValueError, match="layout"):
        Layout(names, shapes, buffers)


def test_sizes_never_wrap_around():
    huge = Layout(("a", "b", "c"), ((2**31, 2**31),) * 3)
    assert huge.size == 3 * 2**62


@pytest.mark.parametrize("w", [np.zeros(3), np.zeros((2, 1)), np.zeros(())])
def test_only_a_vector_of_the_right_size_passes(w):
    with pytest.raises(ValueError, match="vector of 2 numbers"):
        check(w, 2)


def test_a_dot_product_keeps_what_float32_would_lose():
    a = np.array([1e8, 1, -1e8], np.float32)
    assert dot(a, np.ones(3, np.float32)) == 1.0


def test_blocks_of_a_long_dot_product_are_all_counted():
    a = np.ones(65536 * 2 + 3, np.float32)
    assert dot(a, 2 * a) == 2 * a.size
    assert norm(a) == np.sqrt(a.size)


def test_a_length_whose_square_float32_cannot_hold_is_right():
    assert norm(np.array([3e30, 4e30], np.float32)) == pytest.approx(5e30, rel=1e-6)


@pytest.mark.parametrize("size", [0, 1, 8192, 8193, 50_001])
def test_a_length_is_the_root_of_the_product_with_itself_to_the_last_bit(size):
    a = np.random.default_rng(size).normal(size=size).astype(np.float32)
    assert norm(a) == float(np.sqrt(dot(a, a.copy())))
