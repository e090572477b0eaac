"""Guards at the door: updates that cannot be honest, floods, strikes, quarantine."""

import numpy as np
import pytest

from coordinator.guards import Guard
from edgefl.algorithms.base import Update
from edgefl.config import Guards
from edgefl.errors import WireError


def update(length: float, weight: float = 10.0, **extra: float) -> Update:
    beside = {name: np.array([number]) for name, number in extra.items()}
    return Update(np.array([length, 0.0], np.float32), weight, 1, beside)


def refusal(bad: Update, model: float = 1.0) -> str:
    with pytest.raises(WireError) as caught:
        Guard(Guards()).check("pi", bad, model)
    assert "device 'pi'" in str(caught.value)
    return caught.value.code


def test_only_the_absurd_is_refused_whatever_others_sent():
    guard = Guard(Guards())
    for _ in range(70):
        guard.check("tiny", update(1e-9), 1.0)
    guard.check("pi", update(1e5, weight=1e12), 1.0)
    assert refusal(update(3e6)) == "update.norm"


def test_numbers_whose_square_overflows_are_refused():
    assert refusal(update(3e38)) == "update.norm"
    assert refusal(update(1.0, fisher=1e200)) == "update.norm"


def test_the_third_strike_means_quarantine_for_a_while():
    guard = Guard(Guards(strikes=3, quarantine_seconds=60))
    assert [guard.strike("pi", now) for now in (1.0, 2.0, 3.0)] == [False, False, True]
    assert guard.quarantined("pi", 62.9)
    assert guard.released(62.9) == []
    assert guard.released(63.0) == ["pi"]
    assert guard.released(63.0) == [], "it is told once"
    assert not guard.quarantined("pi", 63.0)


def test_old_strikes_are_forgiven():
    guard = Guard(Guards(strikes=3, quarantine_seconds=60))
    assert not any(guard.strike("pi", now) for now in (0.0, 50.0, 111.0, 160.0, 222.0))


def test_strikes_in_quarantine_do_not_make_it_longer():
    guard = Guard(Guards(strikes=1, quarantine_seconds=60))
    assert guard.strike("pi", 0.0)
    assert not guard.strike("pi", 30.0)
    assert not guard.quarantined("pi", 60.0)


def test_one_device_does_not_answer_for_another():
    guard = Guard(Guards(strikes=1))
    guard.strike("pi", 0.0)
    assert not guard.quarantined("other", 0.0)


def test_a_flood_ends_with_the_minute():
    guard = Guard(Guards(megabytes_per_minute=1.0))
    assert guard.allows("pi", 999_999, 100.0)
    assert not guard.allows("pi", 2, 101.0)
    assert guard.allows("other", 2, 101.0)
    assert guard.allows("pi", 2, 160.0)
