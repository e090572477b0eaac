"""A device describes its data again only when ten rows are different; else it says word for word what it said."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.shell import descriptions
from device_agent.shell.descriptions import Descriptions, differing, sketched
from edgefl.base.vector import State
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import FEWEST, describe
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk

SALT = b"of this device"
POOL = Dataset(
    np.random.default_rng(0).normal(1013.25, 4, (300, 2)).astype(np.float32),
    np.random.default_rng(1).integers(0, 2, 300),
    2,
)


@pytest.fixture(autouse=True)
def one_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one in 20 of all salts two of ten rows change the same place of a sketch, and count as one."""
    monkeypatch.setattr(descriptions.secrets, "token_bytes", lambda _: SALT)


def rows(*numbers: int) -> Dataset:
    return POOL.take(np.array(numbers, np.int64))


def first(n: int) -> Dataset:
    return rows(*range(n))


def said(kept: Descriptions, data: Dataset) -> State:
    return kept.of(data, data)


def same(one: State, other: State) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in one)


def fresh(data: Dataset) -> State:
    return describe(data, features=True, classes=True)


def test_nine_rows_more_are_not_described_and_ten_are() -> None:
    kept = Descriptions(MemoryDisk())
    before = said(kept, first(100))
    assert same(before, fresh(first(100)))
    for n in (101, 105, 109, 91):
        assert same(said(kept, first(n)), before), "word for word"
    assert same(said(kept, first(110)), fresh(first(110)))
    assert same(said(kept, first(101)), before), "nor does a way back by steps of ten lead between two descriptions"


def test_it_holds_after_a_restart_and_across_runs(tmp_path: Path) -> None:
    before = said(Descriptions(FolderDisk(tmp_path)), first(100))
    assert same(said(Descriptions(FolderDisk(tmp_path)), first(101)), before)
    assert (tmp_path / descriptions.NAME).stat().st_size < 20_000
    assert POOL.x[:100].tobytes()[:16] not in (tmp_path / descriptions.NAME).read_bytes()


def test_what_is_kept_stays_small_however_often_data_change(tmp_path: Path) -> None:
    kept = Descriptions(FolderDisk(tmp_path))
    rng = np.random.default_rng(2)
    for _ in range(descriptions.MOST + 8):
        said(kept, Dataset(rng.normal(size=(20, 2)).astype(np.float32), rng.integers(0, 2, 20), 2))
    assert (tmp_path / descriptions.NAME).stat().st_size < descriptions.MOST * 10_000


def test_rows_in_another_order_are_the_same_rows() -> None:
    kept = Descriptions(MemoryDisk())
    before = said(kept, first(100))
    assert same(said(kept, rows(*reversed(range(100)))), before)


def test_classes_by_other_names_are_described_of_the_same_rows_only() -> None:
    kept = Descriptions(MemoryDisk())
    said(kept, first(100))
    three = Dataset(POOL.x[:100], POOL.y[:100], 3)
    assert said(kept, three)["classes"].tolist() == [*np.bincount(POOL.y[:100]).tolist(), 0]
    four = Dataset(POOL.x[:101], POOL.y[:101], 4)
    assert kept.of(four, first(101))["samples"].tolist() == [0], "a run that counts otherwise learns no difference"
    assert not kept.of(four, first(101))["mean"].any()


def test_one_more_name_that_moves_the_numbers_of_all_others_changes_one_row() -> None:
    two = Dataset(POOL.x[:100], POOL.y[:100], 2, ("off", "on"))
    three = Dataset(POOL.x[:101], np.append(POOL.y[:100] + 1, 0), 3, ("broken", "off", "on"))
    assert differing(sketched(two, SALT), sketched(three, SALT)) == 1


def test_rows_that_are_held_back_count_as_rows(tmp_path: Path) -> None:
    """One row more may move many between the parts: their sums together would give it."""
    kept = Descriptions(MemoryDisk())
    before = kept.of(first(80), first(100))
    assert same(kept.of(rows(*range(21, 101)), first(101)), before)


def test_few_samples_are_not_described_and_not_kept() -> None:
    kept = Descriptions(MemoryDisk())
    assert said(kept, first(FEWEST - 1))["samples"].tolist() == [0]
    assert same(said(kept, first(FEWEST)), fresh(first(FEWEST)))


def test_with_a_damaged_memory_a_device_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said(Descriptions(FolderDisk(tmp_path)), first(100))
    raw = bytearray((tmp_path / descriptions.NAME).read_bytes())
    raw[-1] ^= 1
    (tmp_path / descriptions.NAME).write_bytes(raw)
    assert said(Descriptions(FolderDisk(tmp_path)), first(101))["samples"].tolist() == [0]
    assert "what it said before cannot be read" in caplog.text
    (tmp_path / descriptions.NAME).unlink()
    assert said(Descriptions(FolderDisk(tmp_path)), first(101))["samples"].tolist() == [101]


@given(added=st.sets(st.integers(100, 299), max_size=30), removed=st.sets(st.integers(0, 99), max_size=30))
def test_a_sketch_never_says_that_more_rows_are_different_than_are(added: set[int], removed: set[int]) -> None:
    now = rows(*(set(range(100)) - removed | added))
    assert differing(sketched(first(100), SALT), sketched(now, SALT)) <= len(added) + len(removed)
