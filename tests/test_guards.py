"""Guards at the door: updates that cannot be honest, floods, strikes, quarantine."""

import numpy as np
import pytest

from coordinator.guards import ENOUGH, Guard
from edgefl.algorithms.base import Update
from edgefl.config import Guards
from edgefl.errors import WireError


def update(length: float, weight: float = 10.0) -> Update:
    return Update(np.array([length, 0.0], np.float32), weight, 1, {})


def experienced(**rules: float) -> Guard:
    guard = Guard(Guards(**rules))
    for _ in range(ENOUGH):
        guard.check("honest", update(1.0), 10, 1.0)
    return guard


def refusal(guard: Guard, bad: Update, samples: int = 10, model: float = 1.0) -> str:
    with pytest.raises(WireError) as caught:
        guard.check("pi", bad, samples, model)
    assert "device 'pi'" in str(caught.value)
    return caught.value.code


def test_a_million_times_the_usual_length_is_refused():
    assert refusal(experienced(), update(1e6)) == "update.norm"


def test_what_is_usual_is_learned_and_bounded_by_the_factor():
    guard = experienced(norm_factor=10.0)
    guard.check("pi", update(9.9), 10, 1.0)
    assert refusal(guard, update(10.5)) == "update.norm"


def test_before_anything_is_usual_only_the_absurd_is_refused():
    guard = Guard(Guards())
    guard.check("pi", update(1e5), 10, 1.0)
    assert refusal(guard, update(3e6)) == "update.norm"


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_whose_square_overflows_are_refused():
    assert refusal(Guard(Guards()), update(3e38)) == "update.norm"


def test_a_refused_update_does_not_change_what_is_usual():
    guard = experienced()
    before = list(guard.norms)
    refusal(guard, update(1e6))
    assert list(guard.norms) == before


def test_more_weight_than_samples_can_explain_is_refused():
    assert refusal(experienced(weight_factor=100.0), update(1.0, weight=1001.0), samples=10) == "update.weight"


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
