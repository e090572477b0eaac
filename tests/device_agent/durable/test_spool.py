"""The spool: an update is there until its receipt, whole, or not at all."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from device_agent.durable.spool import Spool, SpooledUpdate, Spools
from edgefl.base.errors import StoreError
from edgefl.system import faults, store
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks
from tools.failing_disk import FailingDisk

FRAME = bytes(range(256)) * 20
HELD = SpooledUpdate(
    "job", "job.life", 3, "1", "m3+g", FRAME, chunks.digest(FRAME), {"c": np.arange(4, dtype=np.float32)}
)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(FolderDisk(tmp_path))


def same(a: SpooledUpdate | None, b: SpooledUpdate) -> bool:
    return a is not None and store_of(a) == store_of(b)


def store_of(held: SpooledUpdate) -> tuple[object, ...]:
    kept = {name: array.tolist() for name, array in held.kept.items()}
    return held.job, held.run_key, held.round, held.attempt, held.model, held.frame, held.digest, kept


def test_an_empty_spool_holds_nothing(spool):
    assert spool.take() is None


def test_what_is_put_is_there_after_a_restart(spool, tmp_path):
    spool.put(HELD)
    assert same(Spool(FolderDisk(tmp_path)).take(), HELD)


def test_what_has_its_receipt_is_gone(spool, tmp_path):
    spool.put(HELD)
    spool.clear()
    spool.clear()
    assert Spool(FolderDisk(tmp_path)).take() is None


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_with_an_update_survives_a_power_cut_as_soon_as_it_is_put(seed):
    disk = FailingDisk()
    Spool(disk).put(HELD)
    disk.crash(Random(seed))
    assert same(Spool(disk).take(), HELD)


def test_an_update_without_anything_kept_survives_a_power_cut_once_it_is_synced():
    stateless = replace(HELD, kept={})

    def survives(seed: int, *, synced: bool) -> bool:
        disk = FailingDisk()
        spool = Spool(disk)
        spool.put(stateless)
        if synced:
            spool.sync()
        disk.crash(Random(seed))
        return same(Spool(disk).take(), stateless)

    assert all(survives(seed, synced=True) for seed in range(12))
    assert not all(survives(seed, synced=False) for seed in range(12)), "or the sync would be of no use"


def test_wherever_a_spool_is_torn_it_is_put_away_and_said(spool, tmp_path, caplog):
    spool.put(HELD)
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    for cut in [*range(1, 400), len(good) - 1]:
        path.write_bytes(good[:cut])
        caplog.clear()
        assert Spool(FolderDisk(tmp_path)).take() is None
        assert "cannot be used" in caplog.text
        assert Spool(FolderDisk(tmp_path)).take() is None, "it is not looked at twice"


def test_an_update_torn_by_the_one_that_follows_it_is_not_taken_for_either(spool, tmp_path):
    spool.put(HELD)
    (path,) = tmp_path.iterdir()
    old = path.read_bytes()
    spool.put(replace(HELD, round=4, frame=FRAME[::-1], digest=chunks.digest(FRAME[::-1])))
    new = path.read_bytes()
    for cut in range(1, len(new), 97):
        path.write_bytes(new[:cut] + old[cut:])
        held = Spool(FolderDisk(tmp_path)).take()
        assert held is None or held.frame == (FRAME if held.round == 3 else FRAME[::-1])


def test_a_put_that_does_not_get_through_leaves_nothing_that_could_be_taken_for_an_update(spool, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_kind", "full")
    monkeypatch.setattr(faults, "_number", "1")
    monkeypatch.setattr(faults, "_writes", 0)
    with pytest.raises(StoreError, match="No space left"):
        spool.put(HELD)
    monkeypatch.setattr(faults, "_kind", "")
    assert Spool(FolderDisk(tmp_path)).take() is None
    spool.put(HELD)
    assert same(Spool(FolderDisk(tmp_path)).take(), HELD)


def test_what_a_kill_left_half_written_is_written_over(tmp_path):
    target = tmp_path / "file"
    (tmp_path / ".file.new").write_bytes(b"half of someth")
    store.write_atomically(target, b"whole")
    assert target.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_updates_of_different_runs_wait_side_by_side(tmp_path):
    other = replace(HELD, job="other", run_key="other.life")
    spools = Spools(FolderDisk(tmp_path), 2)
    assert spools.take() == {}
    spools.put(HELD)
    spools.put(other)
    spools.put(replace(other, round=4))
    waiting = Spools(FolderDisk(tmp_path), 2).take()
    assert {run_key: held.round for run_key, held in waiting.items()} == {
        "job.life": 3,
        "other.life": 4,
    }
    again = Spools(FolderDisk(tmp_path), 2)
    again.take()
    again.clear("job.life")
    again.clear("job.life")
    third = replace(HELD, job="third", run_key="third.life")
    again.put(third)
    assert set(Spools(FolderDisk(tmp_path), 2).take()) == {"third.life", "other.life"}
    assert len(list(tmp_path.iterdir())) == 2, "a place that is free is used again"


def written(folder: Path, place: int, held: SpooledUpdate, number: int) -> None:
    Spool(FolderDisk(folder), place).put(replace(held, number=number))


def test_a_power_cut_before_the_oldest_was_cleared_leaves_room_for_the_next(tmp_path):
    for number, at in enumerate((40, 10, 30, 20, 50)):  # in which order they were written, wherever there was room
        written(tmp_path, number, replace(HELD, run_key=f"job.{at}"), at)
    spools = Spools(FolderDisk(tmp_path), 4)
    assert list(spools.take()) == ["job.20", "job.30", "job.40", "job.50"]
    spools.put(replace(HELD, run_key="job.60"))
    assert "job.10" not in Spools(FolderDisk(tmp_path), 5).take()


def test_of_two_updates_of_one_run_the_newer_one_counts(tmp_path):
    written(tmp_path, 0, replace(HELD, round=4), 20)
    written(tmp_path, 1, HELD, 10)  # cleared, but the power failed before the disk knew
    spools = Spools(FolderDisk(tmp_path), 1)
    assert [held.round for held in spools.take().values()] == [4]
    spools.put(replace(HELD, run_key="other.life"))  # where the older one was
    waiting = Spools(FolderDisk(tmp_path), 2).take()
    assert {run_key: held.round for run_key, held in waiting.items()} == {
        "job.life": 4,
        "other.life": 3,
    }
