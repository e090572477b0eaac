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
from coordinator.durable.answer_store import AnswerStore, Arrival, StoredAnswer
from coordinator.durable.journal import AnswerFrame
from edgefl.base.errors import WireError
from edgefl.learn import robustness
from edgefl.learn.aggregation import mean
from edgefl.learn.contract import Update
from edgefl.learn.robustness import Caps
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk
from edgefl.system.record_log import Record, RecordLog
from edgefl.wire import frames
from edgefl.wire.messages import Answer, frame

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
    return {device: StoredAnswer.of(update, Reader(update)) for device, update in memory.items()}


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
    one = StoredAnswer.of(reader.update, reader).weighing(7.0)
    changed = one.through(lambda delta, extra: (2 * delta, extra))
    assert (reader.reads, changed.weight, changed.steps) == (0, 7.0, 1)
    np.testing.assert_array_equal(changed.delta, 2 * reader.update.delta)
    assert reader.reads == 1
    assert (changed.opened().weight, one.extra["v"].size, reader.reads) == (7.0, 3, 2)  # what is small is at hand


def test_replacing_a_field_gives_an_update_with_its_arrays_at_hand() -> None:
    reader = Reader(next(iter(updates(0, 1).values())))
    other = replace(StoredAnswer.of(reader.update, reader), weight=3.0)
    reads = reader.reads
    np.testing.assert_array_equal(other.delta, reader.update.delta)
    np.testing.assert_array_equal(other.extra["v"], reader.update.extra["v"])
    assert (other.weight, other.opened().weight, reader.reads) == (3.0, 3.0, reads)
    assert replace(other, delta=2 * other.delta).delta.tobytes() == (2 * reader.update.delta).tobytes()


def test_a_store_holds_so_many_bytes_and_of_the_rest_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "HELD", 2 * 4 * SIZE)
    plain = Update(np.ones(SIZE, np.float32), 1.0, 1)
    store = AnswerStore()
    for i in range(4):
        store.put(bytes([i]), plain, Reader(plain))
    store.put(b"no place", plain, None)
    on_disk = [isinstance(record.update, StoredAnswer) for record in store.records.values()]
    assert on_disk == [False, False, True, True, False]
    store.drop(b"no place")
    store.take(bytes([0]))
    store.put(bytes([5]), plain, Reader(plain))
    store.put(bytes([5]), plain, Reader(plain))  # again: it is counted once
    assert not isinstance(store.records[bytes([5])].update, StoredAnswer)
    assert store.held == 2 * 4 * SIZE


# ---- from arrival to merge -----------------------------------------------------------------------------------------

D = b"digest"
UPDATE = Update(np.ones(SIZE, np.float32), 1.0, 1)


def received(store: AnswerStore, data: bytes = b"frame") -> None:
    message = Answer(job="j", run_id="r", round=3, device="a", model="m", weight=1, steps=1, tensors=())
    store.receive("a", D, message, frames.peek(frame(message)), data)


def accepted() -> AnswerStore:
    store = AnswerStore()
    received(store)
    store.open(D, lambda _: UPDATE)
    assert store.accept(D) == AnswerFrame(3, "a", D, b"frame")
    return store


def again(answer: Answer, place: answer_store.Place) -> Reader:
    assert (answer.round, bytes(place())) == (3, b"frame")
    return Reader(UPDATE)


def place() -> memoryview:
    return memoryview(b"frame")


def test_an_answer_is_one_record_until_it_is_merged() -> None:
    store = AnswerStore()
    received(store)
    phases = [store.records[D].phase]
    assert store.open(D, lambda arrival: replace(UPDATE, steps=arrival.message.steps)) is store.records[D].update
    for transition in (lambda: store.accept(D), lambda: store.written(D, place), lambda: store.count(D, again)):
        transition()
        phases.append(store.records[D].phase)
    assert phases == ["received", "accepted", "written", "counted"]
    assert store.records[D].arrival is None, "the memory of its frame is free"
    assert store.take(D).steps == 1
    assert (store.records, store.held) == ({}, 0)


def test_an_answer_is_opened_once_and_one_that_cannot_be_opened_is_put_away() -> None:
    store = AnswerStore()
    received(store)

    def damaged(_: Arrival) -> Update:
        raise WireError("update.size", "too short")

    with pytest.raises(WireError):
        store.open(D, damaged)
    assert store.open(D, lambda _: UPDATE) is UPDATE
    assert store.open(D, damaged) is UPDATE
    store.put_away(D)
    store.put_away(D)
    assert store.records == {}


def test_an_answer_is_accepted_again_while_the_journal_cannot_be_written() -> None:
    store = accepted()
    assert store.accept(D) == AnswerFrame(3, "a", D, b"frame")


@pytest.mark.parametrize("counted", [False, True])
def test_an_answer_that_comes_again_neither_replaces_nor_removes_the_accepted_one(counted: bool) -> None:
    store = accepted()
    if counted:
        store.written(D, place)
        store.count(D, again)
    record = store.records[D]
    received(store, b"other")
    store.put_away(D)
    assert store.records[D] is record


def test_a_counted_answer_is_not_written_or_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "HELD", 0)
    store = accepted()
    store.written(D, place)
    store.count(D, again)
    assert isinstance(update := store.records[D].update, StoredAnswer)
    assert store.accept(D) is None
    store.count(D, again)
    assert store.records[D].update is update


def test_without_a_journal_an_answer_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "HELD", 0)
    store = accepted()
    store.count(D, again)
    assert store.take(D) is UPDATE


def test_only_counted_answers_of_an_abandoned_round_are_dropped() -> None:
    store = accepted()
    store.drop(D, b"unknown")
    assert store.records[D].phase == "accepted"
    store.count(D, again)
    store.drop(D)
    assert (store.records, store.held) == ({}, 0)


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
    row = answer_store._mapped(StoredAnswer.of(large, Reader(large)), disk)
    np.testing.assert_array_equal(row.delta, large.delta)
    assert (row.weight, row.extra["c"].tolist()) == (2.0, [1, 1, 1])
    assert answer_store._lies_in_a_file(row.delta) == (kind is FolderDisk)
    assert [name for name in disk.names() if name != "first"] == []
