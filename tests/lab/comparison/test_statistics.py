"""Means, intervals and paired tests are those of scipy; one seed and a constant difference have rules of their own."""

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgefl.base.events import Done, Round
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.significance import cells, standings
from edgefl.lab.comparison.statistics import holm, paired, quantile, spread, two_sided

scores = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=30)


@given(st.floats(0.01, 60), st.integers(1, 400))
def test_the_tails_of_students_t_are_scipys(t: float, freedom: int):
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-8, abs=1e-300)


@settings(max_examples=25)
@given(st.floats(0.6, 0.9995), st.integers(1, 200))
def test_so_are_its_quantiles(share: float, freedom: int):
    assert quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-8)


@given(scores)
def test_the_interval_of_a_mean_is_scipys(values: list[float]):
    told = spread(values)
    assert told.mean == pytest.approx(np.mean(values))
    assert told.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    if told.deviation > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (told.low, told.high) == pytest.approx((low, high))


def test_a_paired_test_is_scipys_over_the_seeds_that_both_have():
    ours = {0: 0.81, 1: 0.79, 2: 0.86, 3: 0.84, 7: 0.1}
    theirs = {3: 0.80, 2: 0.85, 1: 0.75, 0: 0.79, 9: 0.9}
    common = [0, 1, 2, 3]
    told = paired(ours, theirs)
    known = stats.ttest_rel([ours[s] for s in common], [theirs[s] for s in common])
    interval = known.confidence_interval(0.95)
    assert told is not None
    assert told.p == pytest.approx(known.pvalue)
    assert (told.difference.low, told.difference.high) == pytest.approx((interval.low, interval.high))
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_one_pair_tells_nothing_and_a_constant_difference_everything():
    single = paired({0: 0.5}, {0: 0.4})
    assert single is not None
    assert isnan(single.p)
    constant, none = paired({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.5}), paired({0: 0.5, 1: 0.7}, {0: 0.5, 1: 0.7})
    assert constant is not None
    assert none is not None
    assert (constant.p, none.p) == (0.0, 1.0)


def test_holm_multiplies_the_smallest_by_all_and_never_overtakes():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    corrected = holm([nan, 0.02, 0.9])
    assert isnan(corrected[0])
    assert corrected[1:] == pytest.approx([0.04, 0.9])


def run(label: str, seed: int, last: float) -> PlayedRun:
    rounds = tuple(
        Round(i, devices=2, scores={"accuracy": a}) for i, a in enumerate([0.99, last, last, last, last, last], 1)
    )
    return PlayedRun(label, seed, rounds, Done("run", "fedavg", 6))


def test_variants_are_compared_by_the_mean_of_the_last_five_and_not_by_their_best_round():
    runs = [run("a", 0, 0.5), run("a", 1, 0.6), run("b", 0, 0.7), run("b", 1, 0.81), run("c", 0, 0.4)]
    first, second, third = standings(runs)
    assert (first.score.mean, first.against) == (pytest.approx(0.55), None)
    assert second.against is not None
    assert second.against.difference.mean == pytest.approx(0.205)
    assert third.score.seeds == 1
    head, rows = cells([first, second, third])
    assert {len(row) for row in rows} == {len(head)}
    assert rows[2][3:5] == ["-", "-"]
    assert standings(runs, "b")[0].against is not None
