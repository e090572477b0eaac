"""Checkpoints behind the rounds: in their order, none left out, and told of where somebody waits for it."""

from functools import partial

from coordinator.saving import Saving, Stuck, Unstuck
from edgefl.errors import StoreError


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
