"""Checkpoints behind the rounds: in their order, none left out, and told of where somebody waits for it."""

from functools import partial

import numpy as np

from coordinator.durable.checkpoint_writer import APART, Saving, Stuck, Unstuck
from edgefl.base.errors import StoreError
from edgefl.job.run.job import RunState


class FullDisk:
    """Takes what it is given once there is room."""

    def __init__(self) -> None:
        self.full, self.saved = False, list[int]()

    def save(self, round: int) -> None:
        if self.full:
            raise StoreError("no room")
        self.saved.append(round)


def test_what_waits_is_saved_in_its_order_and_told_where_somebody_waits():
    disk, saving, told = FullDisk(), Saving(), []
    for round in (1, 2, 3):
        saving.add(partial(disk.save, round), "merged" if round == 3 else None)
    saving.work(told.append)
    assert (disk.saved, told) == ([1, 2, 3], ["merged"])
    saving.work(told.append)
    assert (disk.saved, told) == ([1, 2, 3], ["merged"]), "nothing is left to do"


def test_a_full_disk_holds_up_later_ones_and_loses_none():
    disk, saving, told = FullDisk(), Saving(), []
    disk.full = True
    for round in (1, 2):
        saving.add(partial(disk.save, round))
        saving.work(told.append)
    assert disk.saved == []
    assert all(isinstance(one, Stuck) and one.reason == "no room" for one in told)
    first, second = told
    disk.full = False
    first.work(told.append)
    second.work(told.append)
    assert disk.saved == [1, 2]
    assert [one for one in told if not isinstance(one, Stuck)] == [Unstuck()], "once"


def state(round: int, best: int) -> RunState:
    return RunState(round, np.zeros(1, np.float32), best_round=best)


def test_one_that_follows_within_a_second_may_be_put_off_and_the_next_stands_for_it():
    disk, saving = FullDisk(), Saving()
    assert not saving.soon_after(5.0), "the first one is saved"
    saving.add(partial(disk.save, 1), now=5.0)
    assert saving.soon_after(5.0 + APART / 2)
    assert not saving.soon_after(5.0 + APART)
    for round in (2, 3):
        saving.put_off(partial(disk.save, round), (state(round, round),))
    saving.add(partial(disk.save, 4), now=6.0)
    saving.finish()
    assert disk.saved == [1, 4]


def test_of_those_that_were_put_off_the_best_is_at_hand_until_another_is_saved():
    saving = Saving()
    saving.put_off(lambda: None, (state(1, 1), state(2, 2)))
    saving.put_off(lambda: None, (*saving.passed, state(3, 2)))
    assert [one.round for one in saving.passed] == [2]
    saving.add(lambda: None, now=0.0)
    assert saving.passed == ()


def test_whoever_ends_saves_the_last_one_that_was_put_off():
    disk, saving = FullDisk(), Saving()
    saving.add(partial(disk.save, 1), now=5.0)
    saving.put_off(partial(disk.save, 2), (state(2, 2),))
    saving.put_off(partial(disk.save, 3), (state(3, 3),))
    saving.finish()
    assert disk.saved == [1, 3]
    saving.finish()
    assert disk.saved == [1, 3], "once"
