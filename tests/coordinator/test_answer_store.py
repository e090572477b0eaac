"""Answers in the journal: read again one by one they merge to the same bits, and memory holds only a few of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.durable import answer_store
from coordinator.durable.answer_store import Shelf, Stored
from edgefl.learn import robustness
from edgefl.learn.aggregation import mean
from edgefl.learn.contract import Update
from edgefl.learn.robustness import Caps
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk
from edgefl.system.record_log import Record, RecordLog

SIZE = 1000


class Reader:
    """Gives an update, and counts how often it was asked."""

    def __init__(self, update: Update) -> None:
        self.update, self.reads = update, 0

    def __call__(self) -> Update:
        self.reads += 1
        return self.update


def updates(seed: int, count: int, scale: float = 1.0) -> dict[str, Update]:
    rng = np.random.default_rng(seed)
    return {
        f"d{i}": Update(
            rng.normal(size=SIZE).astype(np.float32) * np.float32(scale if i == 0 else 1),
            float(rng.integers(1, 100)),
            1,
            {"v": rng.normal(size=SIZE if i % 2 else 3)},
        )
        for i in range(count)
    }


def on_disk(memory: Mapping[str, Update]) -> dict[str, Update]:
    return {device: Stored.of(update, Reader(update)) for device, update in memory.items()}


# So much memory is taken here that sockets are collected which earlier tests of the same process left open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(seed=st.integers(0, 999), count=st.integers(1, 8), scale=st.sampled_from([1.0, 50.0]))
def test_what_lies_on_disk_is_bounded_and_averaged_to_the_same_bits(seed: int, count: int, scale: float) -> None:
    memory, caps = updates(seed, count, scale), Caps(2.0, 2.0, 2.0)
    bound = partial(robustness.bound, late={}, state={}, trainable=SIZE - 10, caps=caps)
    ours, theirs = bound(on_disk(memory)), bound(memory)
    assert ours.changed == theirs.changed
    assert mean(ours.updates).tobytes() == mean(theirs.updates).tobytes()
    for device, update in theirs.updates.items():
        assert ours.updates[device].extra["v"].tobytes() == update.extra["v"].tobytes()


def test_nothing_is_read_before_a_stage_looks_and_a_look_is_one_reading() -> None:
    reader = Reader(next(iter(updates(0, 1).values())))
    one = Stored.of(reader.update, reader).weighing(7.0)
    changed = one.through(lambda delta, extra: (2 * delta, extra))
    assert (reader.reads, changed.weight, changed.steps) == (0, 7.0, 1)
    np.testing.assert_array_equal(changed.delta, 2 * reader.update.delta)
    assert reader.reads == 1
    assert (changed.opened().weight, one.extra["v"].size, reader.reads) == (7.0, 3, 2)  # what is small is at hand


def test_replacing_a_field_gives_an_update_with_its_arrays_at_hand() -> None:
    reader = Reader(next(iter(updates(0, 1).values())))
    other = replace(Stored.of(reader.update, reader), weight=3.0)
    reads = reader.reads
    np.testing.assert_array_equal(other.delta, reader.update.delta)
    np.testing.assert_array_equal(other.extra["v"], reader.update.extra["v"])
    assert (other.weight, other.opened().weight, reader.reads) == (3.0, 3.0, reads)
    assert replace(other, delta=2 * other.delta).delta.tobytes() == (2 * reader.update.delta).tobytes()


def test_a_shelf_holds_so_many_bytes_and_of_the_rest_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "HELD", 2 * 4 * SIZE)
    plain = Update(np.ones(SIZE, np.float32), 1.0, 1)
    shelf = Shelf()
    for i in range(4):
        shelf.put(bytes([i]), plain, Reader(plain))
    shelf.put(b"no place", plain, None)
    assert [isinstance(one, Stored) for one in shelf.updates.values()] == [False, False, True, True, False]
    shelf.drop(b"no place")
    shelf.take(bytes([0]))
    shelf.put(bytes([5]), plain, Reader(plain))
    shelf.put(bytes([5]), plain, Reader(plain))  # again: it is counted once
    assert not isinstance(shelf.updates[bytes([5])], Stored)
    assert shelf.held == 2 * 4 * SIZE


def test_a_body_lies_where_numbers_can_be_used_and_stays_when_its_file_goes(tmp_path: Path) -> None:
    disk, numbers = FolderDisk(tmp_path), np.arange(5, dtype=np.float32)
    log = RecordLog(disk, "log")
    places = [log.append(Record({"n": "x" * i}, numbers.tobytes()))[0] for i in range(3)]
    views = [np.frombuffer(log.body(place), np.float32) for place in places]
    assert all(place.start % 64 == 0 for place in places)
    assert all(answer_store._lies_in_a_file(view) for view in views)
    disk.remove("log")
    assert all(np.array_equal(view, numbers) for view in views)


@pytest.mark.parametrize("kind", [FolderDisk, MemoryDisk])
def test_rows_of_a_stage_that_wants_all_of_them_lie_on_the_disk(kind: type, tmp_path: Path) -> None:
    disk = kind(tmp_path) if kind is FolderDisk else kind()
    if kind is FolderDisk:
        disk.write("first", b"")
    large = Update(np.arange(9000, dtype=np.float32), 2.0, 1, {"c": np.ones(3)})
    row = answer_store._mapped(Stored.of(large, Reader(large)), disk)
    np.testing.assert_array_equal(row.delta, large.delta)
    assert (row.weight, row.extra["c"].tolist()) == (2.0, [1, 1, 1])
    assert answer_store._lies_in_a_file(row.delta) == (kind is FolderDisk)
    assert [name for name in disk.names() if name != "first"] == []
