"""What a forward pass keeps: cut into pieces that are large but not too large, and no more than is needed."""

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.onnx_handover import ALIGN, PIECE, cut, fresh

TYPES = st.sampled_from([np.float32, np.int64, np.bool_])
SIZES = st.lists(st.integers(0, 40), max_size=4)


@given(st.lists(st.tuples(TYPES, SIZES), max_size=20), st.integers(1, 8))
def test_kept_values_are_aligned_and_never_overlap(values, batch):
    how = cut([(str(i), dtype, dims) for i, (dtype, dims) in enumerate(values)], batch)
    ends = [0] * len(how.pieces)
    for part in how.parts.values():
        assert part.offset % ALIGN == 0
        assert part.offset >= ends[part.piece]
        ends[part.piece] = part.offset + int(np.prod(part.shape)) * np.dtype(part.dtype).itemsize
    assert all(end <= size for end, size in zip(ends, how.pieces, strict=True))


def test_a_piece_grows_to_its_limit_and_only_a_single_value_beyond():
    quarter = PIECE // 4 // 4  # in numbers
    how = cut([(str(i), np.float32, (quarter,)) for i in range(5)] + [("large", np.float32, (PIECE,))], 1)
    assert [part.piece for part in how.parts.values()] == [0, 0, 0, 0, 1, 2]
    assert how.pieces[2] == 4 * PIECE


def test_two_passes_that_are_both_waiting_have_memory_of_their_own():
    how = cut([("a", np.float32, (2,))], 2)
    one, other = fresh(how), fresh(how)
    assert one.place != other.place
    assert one.address(how.parts["a"]) == one.memory[0].ctypes.data


def handed(*layers, shape):
    """How many numbers per sample each value has that the forward graph hands over."""
    graph = onnx.load_model_from_string(export(nn.Sequential(*layers), shape).training).graph
    values = [o.type.tensor_type.shape.dim for o in graph.output if o.name != "logits"]
    return sorted(int(np.prod([d.dim_value or 1 for d in dims])) for dims in values)


@pytest.fixture(autouse=True)
def same_weights():
    torch.manual_seed(1)


def test_of_a_pooled_image_the_places_of_its_maxima_are_kept_and_not_the_image():
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4)
    assert handed(*layers, shape=(1, 8, 8)) == [32, 32]  # the places, and the maxima


def test_of_a_gelu_its_slope_is_kept_and_nothing_it_was_made_of():
    layers = nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 4)
    assert handed(*layers, shape=(6,)) == [7, 7]  # the slope, and what goes on
