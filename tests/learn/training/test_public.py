"""The split of the public data and the early stopping that server stages share."""

from itertools import repeat

import numpy as np
import pytest

from edgefl.base.errors import ConfigError
from edgefl.learn.contract import Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.training.public import classified, polish, rows, split


def public(y, classes=3):
    return Site(
        None, Dataset(np.arange(len(y), dtype=np.float32)[:, None], np.array(y), classes), np.random.default_rng(0)
    )


def counter(scores, *, checks, patience, keep_start=True):
    """The number of steps of the model that was kept, when model n scores `scores[n]`."""
    return polish(
        np.zeros(1),
        lambda w, _: w + 1,
        lambda w: scores[int(w[0])],
        repeat(np.arange(1)),
        checks=checks,
        every=1,
        patience=patience,
        keep_start=keep_start,
    )


def test_a_quarter_of_every_class_is_held_out():
    parts = split(public([0, 1] * 20), "distill")
    np.testing.assert_array_equal(parts.validation.counts(), [5, 5, 0])
    np.testing.assert_array_equal(parts.training.counts(), [15, 15, 0])
    assert not set(parts.training.x.ravel()) & set(parts.validation.x.ravel())


def test_the_split_is_the_same_in_every_round():
    site = public([0, 1, 2, 2, 1, 0, 0, 1])
    np.testing.assert_array_equal(split(site, "distill").training.x, split(site, "distill").training.x)


@pytest.mark.parametrize(("y", "count"), [([], "there are none"), ([0, 1, 2], "there are 3")])
def test_too_few_public_samples_name_the_stage_and_the_key(y, count):
    with pytest.raises(ConfigError, match=rf"aggregation 'distill' needs .* {count}; set task\.public"):
        split(public(y), "distill")


def test_real_targets_are_refused_by_name():
    assert classified(public([0, 1]), "algorithm 'x'") == 3
    with pytest.raises(ConfigError, match="algorithm 'x' works on class labels"):
        classified(public([0.5], classes=0), "algorithm 'x'")


def test_every_pass_visits_every_row_once():
    batches = rows(5, 2, public([0]))
    for _ in range(2):
        assert sorted(np.concatenate([next(batches) for _ in range(3)])) == [0, 1, 2, 3, 4]


def test_the_best_check_is_given_back_and_patience_ends_the_walk():
    kept = counter([9, 5, 4, 6, 6, 6, 1], checks=6, patience=3)
    assert (kept.params.tolist(), kept.check) == ([2.0], 2)


def test_a_better_model_renews_the_patience():
    assert counter([9, 5, 6, 6, 4, 6, 1], checks=6, patience=3).check == 6


def test_the_start_wins_when_nothing_is_better_unless_it_is_barred():
    assert counter([1, 2, 2, 2], checks=3, patience=3).check == 0
    assert counter([1, 2, 2, 2], checks=3, patience=3, keep_start=False).check == 1


def test_without_patience_the_last_check_is_kept():
    assert counter([1, 2, 3, 4], checks=3, patience=None).check == 3


def test_a_score_that_is_not_a_number_never_wins():
    assert counter([1, np.nan, np.nan, np.nan], checks=3, patience=3).check == 0
