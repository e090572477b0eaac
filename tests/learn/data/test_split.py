"""Split: the same division in every process, nothing lost, nobody empty."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError
from edgefl.learn.data.catalog import load
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.partition import Partition
from edgefl.learn.data.source import Source, one_of_five
from edgefl.learn.data.split import divide, part, public_rows

patient = settings(deadline=None)  # a busy machine is no failure


def numbered(y, groups=None):
    """A source whose sample i is the number i, so rows can be told apart after division."""
    y = np.asarray(y, np.int64)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    data = Dataset(x, y, int(y.max()) + 1)
    return Source(data, Dataset(x[:1], y[:1], data.classes), groups, "numbered")


@patient
@given(
    st.lists(st.integers(0, 4), min_size=30, max_size=80),
    st.sampled_from(["iid", "dirichlet"]),
    st.floats(0, 0.5),
    st.integers(0, 99),
)
def test_every_sample_is_held_once_by_a_device_or_the_coordinator(y, kind, public, seed):
    split = divide(numbered(y), Partition(kind=kind, devices=5), public, seed)
    everything = [split.public, *split.devices]
    rows = np.concatenate([d.x[:, 0] for d in everything]).astype(int)
    assert sorted(rows) == list(range(len(y)))
    assert np.array_equal(np.concatenate([d.y for d in everything]), np.array(y)[rows])
    assert min(len(d) for d in split.devices) >= 1


@patient
@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.floats(0.01, 0.9), st.integers(1, 5))
def test_the_public_part_leaves_every_class_and_device_a_sample(y, share, devices):
    data = numbered(y).train
    rows = public_rows(data, share, devices, seed=1)
    left = np.delete(data.y, rows)
    assert set(left) == set(y)
    assert len(left) >= min(devices, len(y))


def test_the_public_part_is_in_proportion_with_at_least_one_of_each_class():
    data = numbered([0] * 600 + [1] * 390 + [2] * 10).train
    rows = public_rows(data, 0.02, 5, seed=1)
    assert np.bincount(data.y[rows]).tolist() == [11, 8, 1]


def test_without_a_public_share_the_coordinator_holds_nothing():
    assert len(divide(numbered([0, 1] * 10), Partition(devices=2), 0.0, 1).public) == 0


def test_an_agent_finds_its_own_part_alone():
    source, partition = numbered(np.arange(100) % 4), Partition(kind="dirichlet", devices=6, omega=0.1)
    split = divide(source, partition, 0.1, seed=3)
    for i, held in enumerate(split.devices):
        assert np.array_equal(part(source, partition, 0.1, 3, i).x, held.x)


def test_another_seed_is_another_division():
    source, partition = numbered(np.arange(100) % 4), Partition(devices=2)
    assert not np.array_equal(part(source, partition, 0.1, 1, 0).x, part(source, partition, 0.1, 2, 0).x)


def test_another_process_divides_alike():
    code = (
        "from edgefl.learn.data.split import part; from edgefl.learn.data.partition import Partition; "
        "from edgefl.learn.data.catalog import load; "
        "p = part(load('synthetic'), Partition(kind='dirichlet', devices=7), 0.02, 5, 3); print(p.x.tobytes().hex())"
    )
    here = part(load("synthetic"), Partition(kind="dirichlet", devices=7), 0.02, 5, 3)
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert there == here.x.tobytes().hex()


def test_natural_owners_keep_their_samples_after_the_public_part_is_taken():
    groups = np.repeat([10, 20, 30], 40)
    source = numbered(np.arange(120) % 4, groups)
    devices = divide(source, Partition(kind="natural", devices=3), 0.1, 1).devices
    assert [set(groups[d.x[:, 0].astype(int)]) for d in devices] == [{10}, {20}, {30}]


def test_real_targets_can_be_divided():
    x = np.arange(20, dtype=np.float32)[:, None]
    source = Source(Dataset(x, x[:, 0] / 3, 0), Dataset(x, x[:, 0], 0), None, "real")
    split = divide(source, Partition(devices=3), 0.2, 1)
    assert [len(split.public), *(len(d) for d in split.devices)] == [4, 6, 5, 5]


def test_a_device_left_with_nothing_is_named():
    # Devices 0 and 2 hold class 0 and nothing else, and there is one sample of it.
    source = numbered([0, 1])
    with pytest.raises(ConfigError, match=r"device \d of 3 would hold no sample of 'numbered' .*fewer devices"):
        divide(source, Partition(kind="power_law", devices=3, per_device=1), 0.0, 1)


@pytest.mark.parametrize("public", [-0.1, 1.0, 2.0, float("nan")])
def test_a_public_share_outside_zero_to_one_is_refused(public):
    with pytest.raises(ConfigError, match="is not a share"):
        divide(numbered([0, 1] * 10), Partition(devices=2), public, 1)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_device_number_outside_the_partition_is_refused(index):
    with pytest.raises(ConfigError, match=f"device number {index} is not in the partition; it has 0 to 1"):
        part(numbered([0, 1] * 10), Partition(devices=2), 0.0, 1, index)


@given(n=st.integers(2, 400), more=st.integers(1, 200))
def test_what_was_trained_on_is_never_tested_on_when_rows_are_added(n: int, more: int) -> None:
    train, test = one_of_five(n)
    later_train, later_test = one_of_five(n + more)
    assert sorted([*train, *test]) == list(range(n))
    assert len(train)
    assert abs(len(test) - n / 5) <= 1
    if n >= 10:
        assert not set(train) & set(later_test)
        assert not set(test) & set(later_train)
