"""Rows by table and key: what was written is there after a kill and after a power cut, all of a change or none."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import StoreError
from edgefl.server.durable import rows as module
from edgefl.server.durable.rows import RowStore
from tools.failing_disk import FailingDisk, PowerCut

CHANGES = st.lists(
    st.dictionaries(st.sampled_from("ab"), st.none() | st.fixed_dictionaries({"n": st.integers(0, 9)}), min_size=1),
    max_size=12,
)


def test_the_last_row_of_a_key_counts_and_none_takes_it_away():
    disk = FailingDisk()
    book = RowStore(disk)
    book.write({"t": {"a": {"n": 1}, "b": {"n": 2}}})
    book.write({"t": {"a": {"n": 3}, "b": None}})
    assert RowStore(disk).tables == book.tables == {"t": {"a": {"n": 3}}}


def test_nothing_to_write_writes_nothing():
    disk = FailingDisk()
    RowStore(disk).write({"t": {}})
    assert disk.writes == 0


def test_a_file_that_has_grown_is_begun_anew_and_the_old_one_goes(monkeypatch):
    monkeypatch.setattr(module, "SMALL", 2000)
    disk = FailingDisk()
    book = RowStore(disk)
    for number in range(200):
        book.write({"t": {"a": {"n": number}}})
    assert disk.used < 4000
    assert len(disk.names()) == 1
    assert RowStore(disk).tables == {"t": {"a": {"n": 199}}}


@given(CHANGES, st.integers(0, 60), st.integers(0, 99))
def test_a_power_cut_leaves_all_of_a_change_or_none(changes, power, seed):
    disk = FailingDisk()
    disk.power, states, done = power, [{}], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL", 300)
        book = RowStore(disk)
        with suppress(PowerCut):
            for change in changes:
                after = {**states[-1], **{key: row for key, row in change.items() if row is not None}}
                states.append({key: row for key, row in after.items() if key not in change or change[key] is not None})
                book.write({"t": change})
                done += 1
        disk.crash(Random(seed))
        held = RowStore(disk).tables.get("t", {})
    assert held in states[done : done + 2]


def test_a_full_disk_leaves_everything_as_it_was():
    disk = FailingDisk()
    book = RowStore(disk)
    book.write({"t": {"a": {"n": 1}}})
    disk.capacity = disk.used
    with pytest.raises(StoreError):
        book.write({"t": {"a": {"n": 2}}})
    assert book.tables == RowStore(disk).tables == {"t": {"a": {"n": 1}}}


def test_a_file_of_a_later_version_is_refused_in_one_line():
    disk = FailingDisk()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "VERSION", 2)
        RowStore(disk).write({"t": {"a": {"n": 1}}})
    with pytest.raises(StoreError, match="a later version"):
        RowStore(disk)
