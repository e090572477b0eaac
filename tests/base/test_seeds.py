"""Every random stream is named: the name alone decides what it gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base import seeds

names = st.lists(st.integers() | st.text(), max_size=4)
fleets = st.sets(st.text("abc-0123", min_size=1, max_size=5), min_size=1, max_size=12)


def first(seed, *names):
    return seeds.stream(seed, *names).integers(2**63)


def test_the_stream_of_a_name_never_changes():
    """A golden number: published results depend on it, on every platform and version."""
    assert seeds.stream(7, 3, "pi-04").bit_generator.random_raw() == 11272123247851668593


@given(names, names)
def test_two_names_share_a_stream_only_if_they_are_equal(a, b):
    assert (first(0, *a) == first(0, *b)) == (a == b)


def test_a_number_and_its_digits_are_two_names():
    assert first(0, 1) != first(0, "1")


def test_numpy_numbers_and_words_name_the_same_stream_as_plain_ones():
    assert first(7, np.int64(3), np.str_("pi-04")) == first(7, 3, "pi-04")


def test_a_cohort_does_not_depend_on_the_order_of_the_candidates():
    assert seeds.sample(1, 2, ["a", "b", "c", "d"], 2) == seeds.sample(1, 2, ["d", "b", "a", "c"], 2)


@given(fleets, st.integers(0, 99), st.integers(0, 14))
def test_a_cohort_is_drawn_from_the_candidates_without_repeats(fleet, round, size):
    drawn = seeds.sample(0, round, fleet, size)
    assert len(set(drawn)) == len(drawn) == min(size, len(fleet))
    assert set(drawn) <= fleet


@given(fleets, st.integers(0, 12))
def test_a_larger_sample_begins_with_the_smaller_one(fleet, size):
    assert seeds.sample(3, 4, fleet, size + 2)[:size] == seeds.sample(3, 4, fleet, size)


def test_rounds_draw_different_cohorts():
    fleet = [f"pi-{i}" for i in range(20)]
    assert len({seeds.sample(0, round, fleet, 5) for round in range(10)}) == 10


def test_everybody_is_asked_about_equally_often():
    fleet = [f"pi-{i}" for i in range(10)]
    asked = [device for round in range(400) for device in seeds.sample(0, round, fleet, 3)]
    assert [asked.count(device) for device in fleet] == pytest.approx([120] * 10, abs=40)
