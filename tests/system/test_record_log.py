"""A log of records: what was appended is read again, a torn end is nobody's loss, and damage is not passed over."""

import logging
from math import inf
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import StoreError
from edgefl.system.record_log import MAGIC, Bodies, Record, RecordLog
from tools.failing_disk import FailingDisk, PowerCut

NAME = "test.log"
RECORDS = st.lists(
    st.lists(
        st.builds(
            Record,
            st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3),
            st.binary(max_size=1500),
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=6,
)


def read(disk: FailingDisk) -> list[Record]:
    log = RecordLog(disk, NAME)
    return [Record(placed.note, log.body(placed)) for placed in list(log.read())]


@given(RECORDS)
def test_what_was_appended_is_read_again(batches: list[list[Record]]) -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    for batch in batches:
        places = log.append(*batch)
        assert [log.body(place) for place in places] == [record.body for record in batch]
    assert read(disk) == [record for batch in batches for record in batch]
    again = RecordLog(disk, NAME)
    again.append(Record({"one": "more"}))
    assert read(disk)[-1] == Record({"one": "more"})


def test_a_note_may_have_numbers_that_are_not_finite_and_the_name_of_a_file_that_is_no_text() -> None:
    disk = FailingDisk()
    notes: list[dict[str, Any]] = [{"loss": inf, "least": -inf}, {"why": "runs/\udcff: no room", "loss": -inf}]
    RecordLog(disk, NAME).append(*map(Record, notes))
    assert [record.note for record in read(disk)] == notes


@given(RECORDS, st.integers(0, 30), st.integers(0, 2**32))
def test_after_a_power_cut_every_promised_batch_is_there_and_perhaps_the_one_in_hand(
    batches: list[list[Record]], steps: int, seed: int
) -> None:
    disk = FailingDisk()
    log, promised = RecordLog(disk, NAME), 0
    disk.power = steps
    try:
        for batch in batches:
            log.append(*batch)
            promised += 1
    except PowerCut:
        pass
    disk.crash(Random(seed))
    again = RecordLog(disk, NAME)
    left = [Record(placed.note, again.body(placed)) for placed in list(again.read())]
    assert [placed.note for placed in RecordLog(disk, NAME).read("last")] == [record.note for record in left]
    again.recover()
    assert left in [[record for batch in batches[:count] for record in batch] for count in (promised, promised + 1)]
    again.append(Record({"goes": "on"}))
    assert read(disk) == [*left, Record({"goes": "on"})]


def test_what_is_left_by_somebody_who_was_killed_lasts_once_it_is_recovered() -> None:
    whole = FailingDisk()
    RecordLog(whole, NAME).append(Record({"is": "whole"}))
    for seed in range(20):
        disk = FailingDisk()
        disk.append(NAME, b"")
        disk.patch(NAME, whole.read(NAME) or b"")  # written by somebody who was killed before it was synced
        log = RecordLog(disk, NAME)
        list(log.read())
        log.recover()
        disk.crash(Random(seed))
        assert read(disk) == [Record({"is": "whole"})]


def test_a_torn_end_is_cut_off_and_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    log.append(Record({"number": 1}))
    end = log.end
    log.append(Record({"number": 2}, b"body"))
    disk.truncate(NAME, log.end - 1)
    again = RecordLog(disk, NAME)
    assert [placed.note for placed in again.read()] == [{"number": 1}]
    with caplog.at_level(logging.WARNING):
        again.recover()
    assert "cut off what a power cut left" in caplog.text
    assert disk.size(NAME) == end


@pytest.mark.parametrize("byte", [0, 2, 5, 13, 20, 40])
def test_damage_in_the_middle_is_an_error_with_a_remedy(byte: int) -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    for number in range(3):
        log.append(Record({"number": number}, b"x" * 30))
    data = bytearray(disk.read(NAME) or b"")
    at = len(data) // 3 + byte
    data[at] ^= 1
    disk.write(NAME, data)
    with pytest.raises(StoreError, match=r"test\.log: damaged at byte .*restore it from a copy, or .* --fresh"):
        list(RecordLog(disk, NAME).read())


def test_a_body_that_looks_like_a_batch_is_not_taken_for_one() -> None:
    inner = FailingDisk()
    RecordLog(inner, NAME).append(Record({"is": "forged"}))
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    log.append(Record({"is": "whole"}))
    end = log.end
    (placed,) = log.append(Record({}, inner.read(NAME) or b""))
    assert MAGIC in bytes(log.body(placed))
    data = disk.read(NAME) or b""
    disk.write(NAME, data[:end] + b"torn" + data[end + 4 :])
    assert read(disk) == [Record({"is": "whole"})]


def test_a_file_that_is_no_log_is_named() -> None:
    for data in (b"", b"not a log, not at all" * 9):
        disk = FailingDisk()
        disk.write(NAME, data)
        with pytest.raises(StoreError, match=r"test\.log: damaged at byte 0, where it should begin; restore it"):
            RecordLog(disk, NAME).append(Record({}))


def test_a_batch_that_did_not_fit_is_not_there_and_the_next_one_is() -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    log.append(Record({"number": 1}))
    disk.capacity = disk.used + 50
    with pytest.raises(StoreError, match="No space left"):
        log.append(Record({"number": 2}, bytes(100)))
    log.append(Record({"number": 3}))
    assert [record.note["number"] for record in read(disk)] == [1, 3]


# ── bodies that are skipped ──────────────────────────────────────────────────────────────────────────────────


class CountingDisk(FailingDisk):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        data = super().read(name, start, size)
        self.bytes_read += len(data or b"")
        return data


@given(RECORDS)
def test_notes_are_the_same_whether_bodies_are_read_or_not(batches: list[list[Record]]) -> None:
    disk, following = FailingDisk(), []
    log = RecordLog(disk, NAME)
    reader = RecordLog(disk, NAME)
    for batch in batches:
        log.append(*batch)
        following += reader.read_on("last")
    expected = [record.note for batch in batches for record in batch]
    for bodies in get_args(Bodies):
        other = RecordLog(disk, NAME)
        placed = list(other.read(bodies))
        assert ([one.note for one in placed], other.end, other.torn) == (expected, log.end, False)
        assert following == placed


def test_a_reader_of_notes_reads_the_bodies_of_the_last_batch_alone() -> None:
    disk = CountingDisk()
    log = RecordLog(disk, NAME)
    for number in range(20):
        log.append(Record({"number": number}, bytes(1 << 20)))
    for bodies, least, most in (("none", 0, 1), ("last", 1, 2), ("all", 20, 21)):
        disk.bytes_read = 0
        assert len(list(RecordLog(disk, NAME).read(bodies))) == 20  # type: ignore[arg-type]  # one of its words
        assert least << 20 <= disk.bytes_read <= most << 20


@pytest.mark.parametrize("torn", [0, 700, -1])
def test_a_torn_body_at_the_end_makes_no_record_and_one_before_it_is_not_looked_at(torn: int) -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    (first,) = log.append(Record({"number": 1}, bytes(2000)))
    (second,) = log.append(Record({"number": 2}, bytes(2000)))
    data = bytearray(disk.read(NAME) or b"")
    for placed in (first, second):
        data[placed.start + torn % placed.size] ^= 1
    disk.write(NAME, data)
    reader = RecordLog(disk, NAME)
    assert [placed.note for placed in reader.read("last")] == [{"number": 1}]
    assert reader.torn
    assert len(list(RecordLog(disk, NAME).read("none"))) == 2
    with pytest.raises(StoreError, match="damaged"):
        list(RecordLog(disk, NAME).read())


def test_a_file_in_the_place_of_one_that_was_read_is_noticed() -> None:
    disk = FailingDisk()
    log = RecordLog(disk, NAME)
    log.append(Record({"run": "this"}))
    log.append(Record({"number": 1}))
    reader = RecordLog(disk, NAME)
    list(reader.read("last"))
    log.append(Record({"number": 2}))
    assert not reader.replaced
    assert [placed.note for placed in reader.read_on("last")] == [{"number": 2}]
    disk.remove(NAME)
    assert reader.replaced
    other = RecordLog(disk, NAME)
    for number in range(4):
        other.append(Record({"run": "other", "number": number}))
    assert reader.replaced
