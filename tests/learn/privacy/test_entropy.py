"""Noise from the operating system: the right distribution, and never the same twice."""

import numpy as np
import pytest
from scipy import stats

from edgefl.learn.privacy import Objective, Output, tilt
from edgefl.learn.privacy.entropy import Entropy

SURE = 1e-9  # the chance that a right source fails a test here


def test_normal_numbers_are_normal() -> None:
    drawn = Entropy().normal(2.0, 3.0, 20001)
    assert drawn.shape == (20001,)
    assert stats.kstest(drawn, stats.norm(2.0, 3.0).cdf).pvalue > SURE
    halves = drawn[:10000], drawn[10001:20001]  # the two of a pair have nothing to do with each other
    assert abs(np.corrcoef(*halves)[0, 1]) < 7 / np.sqrt(10000)


@pytest.mark.parametrize("shape", [1, 7, 200])
def test_gamma_numbers_are_gamma(shape: int) -> None:
    source = Entropy()
    drawn = [source.gamma(shape, 0.5) for _ in range(2000)]
    assert stats.kstest(drawn, stats.gamma(shape, scale=0.5).cdf).pvalue > SURE


def test_nothing_comes_twice_and_nothing_is_infinite() -> None:
    first, second = Entropy().normal(0.0, 1.0, 1000), Entropy().normal(0.0, 1.0, 1000)
    assert len(np.unique([first, second])) == 2000
    assert np.isfinite([first, second]).all()
    assert not np.array_equal(tilt(9, 2.0, Entropy()), tilt(9, 2.0, Entropy()))
    assert Entropy().normal(0.0, 1.0, 0).shape == (0,)


def test_a_mechanism_keeps_its_noise_secret_unless_told_otherwise() -> None:
    assert Output().noise == Objective().noise == "secret"
