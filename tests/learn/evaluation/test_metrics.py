"""What a run is judged by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.base.vector import Layout
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.evaluation.metrics import (
    BATCH,
    aggregation_forgetting,
    evaluate,
    fedntd_forgetting,
    forgetting,
    local_forgetting,
    loss_increase,
    psnr,
    round_forgetting,
    rounds_to,
    summary,
)
from edgefl.learn.losses import cross_entropy, squared_error

nan = np.nan
shares = st.floats(0, 1)
histories = st.integers(2, 6).flatmap(
    lambda t: st.integers(1, 5).flatmap(lambda c: arrays(float, (t, c), elements=shares))
)


class Echo:
    """Gives its input back as logits."""

    layout = Layout((), ())

    def logits(self, w, x):
        return x


def data(x, y, classes):
    return Dataset(np.asarray(x, np.float32), np.asarray(y), classes)


def test_accuracy_is_counted_over_all_samples_and_per_class():
    evaluation = evaluate(Echo(), np.zeros(0), data([[2, 0, 0], [2, 0, 0], [0, 2, 0], [2, 0, 0]], [0, 0, 1, 1], 3))
    assert evaluation.accuracy == 0.75
    np.testing.assert_array_equal(evaluation.per_class, [1.0, 0.5, nan])


def test_an_evaluation_in_batches_equals_one_in_a_single_piece():
    rng = np.random.default_rng(0)
    d = data(rng.standard_normal((2 * BATCH + 7, 3)), rng.integers(0, 3, 2 * BATCH + 7), 3)
    evaluation = evaluate(Echo(), np.zeros(0), d)
    assert evaluation.loss == pytest.approx(cross_entropy(d.x, d.y)[0], rel=1e-6)
    assert evaluation.accuracy == (d.x.argmax(axis=1) == d.y).mean()


def test_regression_has_a_loss_and_no_accuracy():
    evaluation = evaluate(Echo(), np.zeros(0), data([[1.0], [3.0]], np.array([1.0, 1.0], np.float32), 0), squared_error)
    assert (evaluation.accuracy, evaluation.loss, evaluation.per_class.size) == (None, 1.0, 0)


def test_regression_has_errors_in_the_units_of_its_targets():
    evaluation = evaluate(Echo(), np.zeros(0), data([[1.0], [5.0]], np.array([1.0, 3.0], np.float32), 0), squared_error)
    assert (evaluation.mae, evaluation.rmse) == (1.0, pytest.approx(2**0.5))
    assert evaluation.r2 == pytest.approx(1 - 2.0 / 1.0)


def test_targets_that_do_not_vary_have_no_r2():
    evaluation = evaluate(Echo(), np.zeros(0), data([[1.0], [5.0]], np.array([1.0, 1.0], np.float32), 0), squared_error)
    assert evaluation.r2 is None


def test_balanced_accuracy_counts_a_rare_class_as_much_as_a_frequent_one():
    right, wrong = [2, 0, 0], [2, 0, 0]
    evaluation = evaluate(Echo(), np.zeros(0), data([right] * 9 + [wrong], [0] * 9 + [1], 3))
    assert (evaluation.accuracy, evaluation.balanced_accuracy) == (0.9, 0.5)


def test_nothing_can_be_evaluated_on_no_data():
    with pytest.raises(ValueError, match="empty"):
        evaluate(Echo(), np.zeros(0), data(np.zeros((0, 3)), np.zeros(0, int), 3))


def test_round_forgetting_counts_losses_and_not_gains():
    np.testing.assert_allclose(round_forgetting(np.array([[0.5, 0.5], [0.3, 0.9], [0.3, 0.5]])), [0.1, 0.2])


def test_one_round_has_nothing_to_forget():
    assert round_forgetting(np.array([[0.5, 0.5]])).size == 0


def test_classes_without_test_samples_are_left_out_of_the_mean():
    assert forgetting(np.array([0.5, nan, 0.5]), np.array([0.1, nan, 0.5])) == pytest.approx(0.2)
    assert forgetting(np.array([nan]), np.array([nan])) == 0.0
    assert fedntd_forgetting(np.array([[0.5, nan], [0.1, nan]])) == pytest.approx(0.4)


@given(histories)
def test_round_forgetting_is_between_zero_and_one(acc):
    forgotten = round_forgetting(acc)
    assert len(forgotten) == len(acc) - 1
    assert ((forgotten >= 0) & (forgotten <= 1)).all()


@given(histories)
def test_a_model_that_only_improves_forgets_nothing(acc):
    better = np.maximum.accumulate(acc, axis=0)
    assert (round_forgetting(better) == 0).all()
    assert fedntd_forgetting(better) <= 0


def test_fedntd_forgetting_compares_the_best_earlier_round_with_the_last_and_is_not_clamped():
    assert fedntd_forgetting(np.array([[0.2, 0.9], [0.8, 0.1], [0.5, 0.5]])) == pytest.approx((0.3 + 0.4) / 2)
    assert fedntd_forgetting(np.array([[0.2], [0.5]])) == pytest.approx(-0.3)
    assert fedntd_forgetting(np.array([[0.2]])) == 0.0


def test_local_and_aggregation_forgetting_look_at_the_two_halves_of_a_round():
    received, local, merged = np.array([0.6, 0.6]), [np.array([1.0, 0.0]), np.array([0.6, 0.6])], np.array([0.6, 0.4])
    assert local_forgetting(received, local) == pytest.approx((0.3 + 0) / 2)
    assert aggregation_forgetting(local, merged) == pytest.approx((0.2 + 0.1) / 2)
    assert local_forgetting(received, []) == aggregation_forgetting([], merged) == 0.0


def test_loss_increase_is_the_mean_over_the_devices_of_the_last_round():
    assert loss_increase([1.0, 2.0], [[1.5, 2.5], [2.0, 2.0]]) == pytest.approx((1.0 + 0.0) / 2)


def test_loss_increase_needs_the_same_devices_before_and_after():
    with pytest.raises(ValueError, match="1 losses before and 2 after"):
        loss_increase([1.0], [[1.0], [2.0]])


def test_rounds_to_is_the_first_round_at_the_level_and_none_if_it_never_is():
    curve = [0.1, 0.4, 0.3, 0.5]
    assert [rounds_to(curve, level) for level in (0.1, 0.4, 0.45, 0.6)] == [0, 1, 3, None]


def test_a_summary_leaves_the_initial_model_out():
    accuracies = summary([0.99, 0.1, 0.2, 0.8, 0.4, 0.5, 0.6])
    assert (accuracies.best, accuracies.last) == (0.8, 0.6)
    assert accuracies.last_five == pytest.approx(0.5)


def test_psnr_of_equal_images_is_capped_at_a_hundred_decibels():
    image = np.linspace(0, 1, 12).reshape(3, 4)
    assert psnr(image, image) == psnr(image, image + 1e-9) == 100.0


def test_an_error_of_a_tenth_everywhere_is_twenty_decibels():
    assert psnr(np.zeros((4, 4)), np.full((4, 4), 0.1)) == pytest.approx(20.0)
