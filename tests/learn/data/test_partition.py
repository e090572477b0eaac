"""Partitions: every sample exactly once, and each kind keeps its promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.base.errors import ConfigError
from edgefl.learn.data.partition import Partition, apportion, by_class, dirichlet, iid, natural, power_law

LABELS = np.arange(1000) % 10
seeds = st.integers(0, 2**32 - 1)
patient = settings(deadline=None)  # a busy machine is no failure


def rng(seed=0):
    return np.random.default_rng(seed)


@st.composite
def labels(draw, smallest=1):
    """At least `smallest` samples of each of up to six classes, shuffled; class numbers may have gaps."""
    sizes = draw(st.lists(st.integers(smallest, 60), min_size=1, max_size=6))
    return rng(draw(seeds)).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))


def holds_each_row_once(parts, n):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


@patient
@given(st.integers(1, 300), st.integers(1, 300), seeds)
def test_iid_gives_every_row_once_and_even_sizes(n, devices, seed):
    if n < devices:
        with pytest.raises(ConfigError, match=f"{n} samples cannot give {devices} devices"):
            iid(n, devices, rng(seed))
        return
    parts = iid(n, devices, rng(seed))
    assert holds_each_row_once(parts, n)
    assert len(parts) == devices
    assert {len(p) for p in parts} <= {n // devices, -(-n // devices)}


@patient
@given(labels(), st.integers(1, 40), st.sampled_from([1e-6, 0.01, 0.1, 1.0, 1e6]), st.integers(0, 3), seeds)
def test_dirichlet_gives_every_row_once_and_the_minimum_to_everybody(y, devices, omega, minimum, seed):
    if len(y) < devices * minimum:
        with pytest.raises(ConfigError, match="ask for fewer devices"):
            dirichlet(y, devices, omega, rng(seed), minimum)
        return
    parts = dirichlet(y, devices, omega, rng(seed), minimum)
    assert holds_each_row_once(parts, len(y))
    assert len(parts) == devices
    assert min(len(p) for p in parts) >= minimum


def test_a_small_omega_is_more_one_sided_than_a_large_one():
    def largest_share(omega):
        parts = dirichlet(LABELS, 10, omega, rng(), minimum=0)
        table = np.array([np.bincount(LABELS[p], minlength=10) for p in parts])
        return table.max(axis=0).mean() / 100  # of a class, what its main holder has

    assert largest_share(0.01) > 0.8
    assert largest_share(1000.0) < 0.15


@patient
@given(labels(smallest=20), st.integers(1, 20), st.integers(1, 6), seeds)
def test_by_class_gives_every_row_once_and_exactly_so_many_classes(y, devices, per_device, seed):
    classes = len(np.unique(y))
    if not per_device <= classes <= devices * per_device:
        with pytest.raises(ConfigError, match="change devices or per_device"):
            by_class(y, devices, per_device, rng(seed))
        return
    parts = by_class(y, devices, per_device, rng(seed))
    assert holds_each_row_once(parts, len(y))
    assert [len(np.unique(y[p])) for p in parts] == [per_device] * devices


def test_by_class_is_balanced_when_the_classes_are():
    assert {len(p) for p in by_class(LABELS, 20, 2, rng())} == {50}


def test_by_class_with_too_few_samples_says_so():
    with pytest.raises(ConfigError, match="4 samples are too few for 10 shares"):
        by_class(np.array([0, 0, 1, 1]), 5, 2, rng())


@patient
@given(st.lists(st.integers(0, 12), min_size=1, max_size=200), st.integers(1, 13), seeds)
def test_natural_gives_every_row_once_and_never_cuts_a_group(groups, devices, seed):
    groups = np.array(groups)
    if devices > len(np.unique(groups)):
        with pytest.raises(ConfigError, match="natural owners; ask for fewer"):
            natural(groups, devices, rng(seed))
        return
    parts = natural(groups, devices, rng(seed))
    assert holds_each_row_once(parts, len(groups))
    assert sum(len(np.unique(groups[p])) for p in parts) == len(np.unique(groups))
    assert min(len(p) for p in parts) >= 1


def test_natural_gives_each_owner_its_own_device_in_order_when_there_are_enough():
    parts = natural(np.array([7, 3, 7, 5]), 3, rng())
    assert [p.tolist() for p in parts] == [[1], [3], [0, 2]]


def test_natural_evens_out_the_sizes():
    groups = np.repeat(np.arange(6), [50, 30, 20, 40, 35, 25])
    assert sorted(len(p) for p in natural(groups, 2, rng())) == [100, 100]


@patient
@given(labels(), st.integers(1, 20), st.integers(1, 3), seeds)
def test_power_law_gives_every_row_once_and_only_neighbouring_classes(y, devices, per_device, seed):
    classes = np.unique(y)
    if devices + min(per_device, len(classes)) - 1 < len(classes):
        with pytest.raises(ConfigError, match="ask for at least"):
            power_law(y, devices, rng(seed), per_device=per_device)
        return
    parts = power_law(y, devices, rng(seed), per_device=per_device)
    assert holds_each_row_once(parts, len(y))
    for u, rows in enumerate(parts):
        assert set(y[rows]) <= {classes[(u + k) % len(classes)] for k in range(per_device)}


def test_power_law_sizes_have_a_long_tail_and_a_floor():
    sizes = np.sort([len(p) for p in power_law(np.arange(20000) % 10, 100, rng())])
    assert sizes[0] >= 10
    assert sizes[-1] > 5 * np.median(sizes)


@patient
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_apportioned_seats_add_up_and_stay_within_bounds(sizes, data):
    sizes = np.array(sizes)
    total = data.draw(st.integers(0, int(sizes.sum())))
    seats = apportion(sizes, total, sizes)
    assert seats.sum() == total
    assert (seats <= sizes).all()
    assert (seats >= 1).all() or total < len(sizes)


def test_seats_are_in_proportion():
    assert apportion(np.array([600, 300, 100]), 1000, np.array([1000, 1000, 1000])).tolist() == [600, 300, 100]
    assert apportion(np.array([600, 390, 10]), 20, np.array([20, 20, 20])).tolist() == [11, 8, 1]


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes", "natural", "power_law"])
def test_every_kind_can_be_asked_for_in_a_run_file_and_repeats_itself(kind):
    partition = Partition.model_validate({"kind": kind, "devices": 10})
    first, second = (partition.split(LABELS, LABELS, rng(3)) for _ in range(2))
    assert holds_each_row_once(first, 1000)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert Partition.model_validate(partition.model_dump()) == partition


def test_the_options_of_a_run_file_reach_the_partition():
    parts = Partition(kind="classes", devices=5, per_device=4).split(LABELS, None, rng())
    assert {len(np.unique(LABELS[p])) for p in parts} == {4}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"devices": 0}, "greater than or equal to 1"),
        ({"kind": "dirichlet", "omega": 0}, "greater than 0"),
        ({"kind": "dirichlet", "omega": float("nan")}, "greater than 0|finite"),
        ({"kind": "iid", "omega": 0.1}, "omega = 0.1 means nothing to kind 'iid'"),
        ({"kind": "natural", "per_device": 2}, "per_device = 2 means nothing to kind 'natural'"),
        ({"kind": "dirichlet", "omega": None}, "needs omega"),
        ({"kind": "classes", "per_device": 0}, "greater than or equal to 1"),
        ({"kind": "shards"}, "Input should be 'iid'"),
        ({"omgea": 0.1}, "Extra inputs"),
    ],
)
def test_a_wrong_partition_in_a_run_file_is_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        Partition.model_validate(wrong)


def test_natural_without_owners_names_the_way_out():
    with pytest.raises(ConfigError, match="needs data with owners"):
        Partition(kind="natural", devices=2).split(LABELS, None, rng())


@pytest.mark.parametrize("kind", ["dirichlet", "classes", "power_law"])
def test_real_targets_cannot_be_divided_by_class(kind):
    with pytest.raises(ConfigError, match="needs class labels"):
        Partition(kind=kind, devices=2).split(LABELS / 3, None, rng())
