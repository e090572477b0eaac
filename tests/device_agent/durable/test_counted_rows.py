"""A device evaluates models on the rows it evaluated on before, until ten of those it holds back are different."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.durable import counted_rows
from device_agent.durable.counted_rows import SUMMED, CountedRows, found
from device_agent.shell.samples import Samples
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import FEWEST
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk

POOL = Dataset(
    np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32), np.random.default_rng(1).integers(0, 2, 300), 2
)


def rows(*numbers: int) -> Dataset:
    return POOL.take(np.array(numbers, np.int64))


def first(n: int) -> Dataset:
    return rows(*range(n))


def same(one: Dataset, other: Dataset) -> bool:
    return np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


def test_nine_rows_more_are_not_counted_and_ten_are() -> None:
    counted = CountedRows(MemoryDisk())
    assert same(counted.of(first(100)), first(100))
    for n in (101, 109):
        assert same(counted.of(first(n)), first(100))
    assert same(counted.of(first(110)), first(110))
    assert same(counted.of(first(105)), first(100)), "nor does a way back lead between two sets"


def test_while_a_few_of_the_rows_are_gone_nothing_is_counted() -> None:
    counted = CountedRows(MemoryDisk())
    counted.of(first(100))
    assert len(counted.of(first(99))) == 0
    assert len(counted.of(rows(*range(4, 104)))) == 0
    assert same(counted.of(rows(*range(5, 105))), rows(*range(5, 105))), "five gone and five new are ten"
    assert same(counted.of(first(100)), first(100)), "what was counted before may be counted again"


def test_fewer_than_ten_rows_are_never_counted() -> None:
    counted = CountedRows(MemoryDisk())
    assert len(counted.of(first(FEWEST - 1))) == 0
    assert same(counted.of(first(FEWEST)), first(FEWEST))


def test_it_holds_after_a_restart_and_keeps_no_row(tmp_path: Path) -> None:
    CountedRows(FolderDisk(tmp_path)).of(first(100))
    assert same(CountedRows(FolderDisk(tmp_path)).of(first(101)), first(100))
    raw = (tmp_path / counted_rows.NAME).read_bytes()
    assert len(raw) < 2_000
    assert POOL.x[0].tobytes() not in raw


def test_a_damaged_memory_is_said_and_nothing_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    CountedRows(FolderDisk(tmp_path)).of(first(100))
    raw = bytearray((tmp_path / counted_rows.NAME).read_bytes())
    raw[-1] ^= 1
    (tmp_path / counted_rows.NAME).write_bytes(raw)
    assert len(CountedRows(FolderDisk(tmp_path)).of(first(101))) == 0
    assert "this device evaluates no model" in caplog.text
    (tmp_path / counted_rows.NAME).unlink()
    assert same(CountedRows(FolderDisk(tmp_path)).of(first(101)), first(101))


def test_what_is_kept_stays_small_however_often_data_change(tmp_path: Path) -> None:
    counted = CountedRows(FolderDisk(tmp_path))
    for i in range(counted_rows.MOST + 8):
        rng = np.random.default_rng(i)
        counted.of(Dataset(rng.normal(size=(20, 2)).astype(np.float32), rng.integers(0, 2, 20), 2))
    assert (tmp_path / counted_rows.NAME).stat().st_size < counted_rows.MOST * 20 * 8 + 5_000


def test_rows_in_another_order_are_the_same_rows() -> None:
    counted = CountedRows(MemoryDisk())
    counted.of(first(100))
    assert len(counted.of(rows(*reversed(range(100))))) == 100


def test_samples_that_are_read_again_are_counted_as_before() -> None:
    parts = [(first(20), first(100)), (first(21), first(101))]
    samples = Samples.opened(lambda: parts.pop(0))
    samples.count_on(CountedRows(MemoryDisk()).of)
    samples.current(lambda data: data)
    assert samples.held_back is not None
    assert samples.counted is not None
    assert (len(samples.held_back), len(samples.counted)) == (101, 100)


def test_sums_over_the_training_data_leave_out_what_was_added_until_ten_rows_are_different(tmp_path: Path) -> None:
    parts = [(first(n), None) for n in (100, 101, 110, 108)]
    samples = Samples.opened(lambda: parts.pop(0))
    samples.sum_over(CountedRows(FolderDisk(tmp_path), SUMMED).left_out)
    assert samples.left_out == ()
    seen = []
    while parts:
        samples.current(lambda data: data)
        seen.append(samples.left_out)
    assert seen == [(100,), (), tuple(range(100, 108))]
    assert CountedRows(FolderDisk(tmp_path), SUMMED).left_out(first(109)) == tuple(range(100, 109)), "after a restart"
    assert CountedRows(FolderDisk(tmp_path), SUMMED).left_out(first(99)) is None
    assert CountedRows(FolderDisk(tmp_path)).left_out(first(99)) == (), "what is held back has a file of its own"


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_of_equal_rows_as_many_are_found_as_the_set_has(before: list[int], now: list[int]) -> None:
    hashes = np.array(now, np.uint64)
    picked = hashes[found(np.sort(np.array(before, np.uint64)), hashes)].tolist()
    assert sorted(picked) == sorted(n for n in set(now) for _ in range(min(now.count(n), before.count(n))))
