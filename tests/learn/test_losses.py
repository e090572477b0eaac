"""Losses and their gradients, against central differences in float64 and numbers worked out by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgefl.base import seeds
from edgefl.learn.losses import (
    LOSSES,
    binary_cross_entropy,
    cross_entropy,
    double_softmax,
    log_softmax,
    mean_squared_error,
    softmax,
    squared_error,
    weighs,
    weighted,
)

RNG = seeds.stream(0, "losses")
Z = 2 * RNG.standard_normal((5, 3))
Y = np.array([0, 2, 1, 1, 0])
SOFT = softmax(RNG.standard_normal((5, 3)))
REAL = RNG.standard_normal((5, 3))


def slopes(loss, z, y, step=1e-6):
    g = np.zeros_like(z)
    for i in np.ndindex(z.shape):
        h = np.zeros_like(z)
        h[i] = step
        g[i] = (loss(z + h, y)[0] - loss(z - h, y)[0]) / (2 * step)
    return g


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (cross_entropy, Y),
        (cross_entropy, SOFT),
        (cross_entropy, 0.5 * SOFT),
        (double_softmax, Y),
        (double_softmax, SOFT),
        (squared_error, Y),
        (squared_error, REAL),
    ],
)
def test_the_gradient_is_the_slope(loss, y):
    np.testing.assert_allclose(loss(Z, y)[1], slopes(loss, Z, y), atol=1e-8)


def test_squared_error_of_one_output_takes_plain_numbers():
    z, y = np.array([[1.0], [3.0]]), np.array([0.0, 5.0])
    loss, dz = squared_error(z, y)
    assert loss == (0.5 * 1 + 0.5 * 4) / 2
    assert dz.tolist() == [[0.5], [-1.0]]


@pytest.mark.parametrize("loss", [cross_entropy, double_softmax])
def test_a_row_that_is_sure_is_a_label(loss):
    hard, soft = loss(Z, Y), loss(Z, np.eye(3)[Y])
    assert soft[0] == pytest.approx(hard[0], rel=1e-14)
    np.testing.assert_allclose(soft[1], hard[1], atol=1e-16)


def test_knowing_nothing_costs_the_log_of_the_classes():
    assert cross_entropy(np.zeros((4, 10)), np.arange(4))[0] == pytest.approx(np.log(10))


def test_logits_beyond_exp_s_range_are_safe():
    z = np.array([[1e4, -1e4]], np.float32)
    loss, dz = cross_entropy(z, np.array([1]))
    assert loss == 2e4
    assert dz.tolist() == [[1, -1]]


def test_softmax_is_the_exponential_of_its_log_and_sums_to_one():
    np.testing.assert_allclose(softmax(Z), np.exp(log_softmax(Z)), rtol=1e-14)
    np.testing.assert_allclose(softmax(Z).sum(axis=1), 1)


def test_two_classes_cannot_get_below_the_floor_of_the_double_softmax():
    assert double_softmax(np.array([[50.0, -50.0]]), np.array([0]))[0] == pytest.approx(np.log(1 + np.exp(-1)))


@pytest.mark.parametrize(
    ("theirs", "ours", "y"),
    [
        (functional.cross_entropy, cross_entropy, Y),
        (functional.mse_loss, mean_squared_error, REAL),
        (functional.binary_cross_entropy_with_logits, binary_cross_entropy, (Z > 0.3).astype(np.float64)),
    ],
)
def test_losses_by_torchs_names_have_its_value_and_gradient(theirs, ours, y):
    z = torch.tensor(Z, requires_grad=True)
    theirs(z, torch.tensor(y)).backward()
    value, dz = ours(Z, y)
    assert value == pytest.approx(theirs(z, torch.tensor(y)).item(), rel=1e-12)
    np.testing.assert_allclose(dz, z.grad.numpy(), atol=1e-15)


OF_CLASSES = ("cross_entropy", "double_softmax", "squared_error")  # the others: tests/learn/tasks/test_tasks.py


@pytest.mark.parametrize("name", OF_CLASSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_has_the_type_of_the_logits(name, dtype):
    assert LOSSES[name](Z.astype(dtype), Y)[1].dtype == dtype


@pytest.mark.parametrize("name", OF_CLASSES)
def test_logits_and_labels_stay_as_they_were(name):
    z, y = Z.copy(), Y.copy()
    LOSSES[name](z, y)
    assert np.array_equal(z, Z)
    assert np.array_equal(y, Y)


@pytest.mark.parametrize("loss", [cross_entropy, double_softmax])
@pytest.mark.parametrize("soft", [False, True])
def test_a_weighted_loss_is_the_mean_of_weighted_losses_and_its_gradient_is_true(loss, soft):
    rng = np.random.default_rng(0)
    z, weights = rng.normal(size=(6, 3)), np.array([0.5, 1.0, 4.0])
    hard = np.array([0, 1, 2, 2, 0, 1])
    y = np.eye(3)[hard] if soft else hard
    heavy = weighted(loss, weights)
    value, dz = heavy(z, y)
    one_by_one = [weights[c] * loss(z[i : i + 1], hard[i : i + 1])[0] for i, c in enumerate(hard)]
    assert value == pytest.approx(np.mean(one_by_one))
    for i, j in np.ndindex(z.shape):
        step = np.zeros_like(z)
        step[i, j] = 1e-6
        slope = (heavy(z + step, y)[0] - heavy(z - step, y)[0]) / 2e-6
        assert dz[i, j] == pytest.approx(slope, abs=1e-7)


def test_losses_for_targets_cannot_weigh_classes():
    assert [weighs(loss) for loss in (cross_entropy, double_softmax, squared_error)] == [True, True, False]
