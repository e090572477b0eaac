from math import sqrt

import numpy as np
import pytest

from coordinator.durable.staleness import Latecomer, fold
from edgefl.learn.contract import Update


def update(weight: float) -> Update:
    return Update(np.ones(2, np.float32), weight, 1)


FRESH = {"a": update(1.0), "b": update(2.0)}
LATE = {"b": Latecomer(2, update(5.0)), "c": Latecomer(1, update(6.0))}


def test_dropped_latecomers_are_nowhere():
    assert fold("drop", 3, FRESH, LATE) == (FRESH, {})


def test_remembered_latecomers_are_shown_to_the_stages_only():
    assert fold("memory", 3, FRESH, LATE) == (FRESH, {"c": LATE["c"].update})


def test_discounted_latecomers_are_merged_with_less_weight_the_older_they_are():
    updates, late = fold("discount", 3, FRESH, LATE)
    assert late == {}
    assert updates["c"].weight == pytest.approx(6.0 / (1 + sqrt(2)))


def test_a_fresh_answer_stands_before_a_late_one_of_the_same_device():
    for policy in ("discount", "memory"):
        updates, late = fold(policy, 3, FRESH, LATE)
        assert updates["b"] is FRESH["b"]
        assert "b" not in late
