"""Guards at the door: updates that cannot be honest, floods."""

import numpy as np
import pytest

from coordinator.shell.guards import Guard, check
from edgefl.base.errors import WireError
from edgefl.job.config.schema import Guards
from edgefl.learn.contract import Update


def update(length: float, weight: float = 10.0, **extra: float) -> Update:
    beside = {name: np.array([number]) for name, number in extra.items()}
    return Update(np.array([length, 0.0], np.float32), weight, 1, beside)


def refusal(bad: Update, model: float = 1.0) -> str:
    with pytest.raises(WireError) as caught:
        check("pi", bad, model)
    assert "device 'pi'" in str(caught.value)
    return caught.value.code


def test_only_the_absurd_is_refused_whatever_others_sent():
    for _ in range(70):
        check("tiny", update(1e-9), 1.0)
    check("pi", update(1e5, weight=1e12), 1.0)
    assert refusal(update(3e6)) == "update.norm"


def test_numbers_whose_square_overflows_are_refused():
    assert refusal(update(3e38)) == "update.norm"
    assert refusal(update(1.0, fisher=1e200)) == "update.norm"


def test_a_flood_ends_with_the_minute():
    guard = Guard(Guards(megabytes_per_minute=1.0))
    assert guard.allows("pi", 999_999, 100.0)
    assert not guard.allows("pi", 2, 101.0)
    assert guard.allows("other", 2, 101.0)
    assert guard.allows("pi", 2, 160.0)
