"""FedReg: invariants R1 to R10."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from plays import Play, fleet
from toys import Linear, Mlp, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedreg import FedReg, correct, modified_gradient, pseudo_data
from edgefl.learn.contract import Budget, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import cross_entropy, softmax
from edgefl.learn.training.local import gradient

MLP = Mlp(4, 5, 3)
VECTORS = arrays(np.float64, 6, elements=st.floats(-10, 10).map(lambda v: round(v, 6)))


# ------------------------------------------------------------------ the corrections


@given(VECTORS, VECTORS, VECTORS, VECTORS)
def test_a_correction_never_lets_the_loss_grow_and_touches_only_what_it_must(w, w_old, g_s, g_p):
    fixed, w_s, w_p = correct(w, w_old, g_s, g_p)
    first = w - w_s * g_s
    assert w_s >= 0
    assert w_p >= 0
    assert (w_old - first) @ g_s >= -1e-9
    assert (w_old - fixed) @ g_p >= -1e-9
    if w_s > 0:
        assert (w_old - first) @ g_s == pytest.approx(0, abs=1e-9)
    if w_p > 0:
        assert (w_old - fixed) @ g_p == pytest.approx(0, abs=1e-9)
    if w_s == w_p == 0:
        assert np.array_equal(fixed, w)


def test_corrections_by_hand():
    w, w_s, w_p = correct(np.array([2.0, 3.0]), np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, -1.0]))
    np.testing.assert_array_equal(w, [0.0, 3.0])
    assert (w_s, w_p) == (2.0, 0.0)


def test_a_zero_gradient_corrects_nothing():
    w = np.array([1.0, 2.0], np.float32)
    fixed, w_s, w_p = correct(w, np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(2, np.float32))
    assert np.array_equal(fixed, w)
    assert (w_s, w_p) == (0.0, 0.0)
    assert fixed.dtype == np.float32


def test_at_the_received_model_there_is_nothing_to_correct():
    w, rng = weights(MLP), np.random.default_rng(0)
    g_s, g_p = rng.standard_normal((2, len(w))).astype(np.float32)
    assert np.array_equal(correct(w, w, g_s, g_p)[0], w)


@given(VECTORS, VECTORS)
def test_the_modified_gradient_is_orthogonal_to_what_it_hides(g, g_m):
    v = modified_gradient(g, g_m)
    assert v @ g_m == pytest.approx(0, abs=1e-9)
    if not g_m.any():
        assert np.array_equal(v, g)


# ------------------------------------------------------------------ pseudo data


@given(st.integers(0, 500), st.floats(0.001, 0.5), st.integers(0, 12))
def test_pseudo_data_stay_near_and_carry_the_old_model_s_answer(seed, step, steps):
    w, data = weights(MLP, seed, np.float64), dataset(samples=7, seed=seed)
    x = data.x.astype(np.float64)
    before = x.copy()
    x_s, y_s = pseudo_data(MLP, w, x, data.y, step, steps)
    assert np.array_equal(x, before)
    assert not np.shares_memory(x, x_s)
    assert np.abs(x_s - x).max() <= steps * step * (1 + 1e-9)
    np.testing.assert_allclose(y_s.sum(axis=1), 1)
    np.testing.assert_allclose(y_s, softmax(MLP.logits(w, x_s)))


def test_one_pseudo_step_follows_the_sign_of_the_input_gradient():
    w, data = weights(MLP, 1, np.float64), dataset(samples=5)
    x = data.x.astype(np.float64)
    uphill = numeric_gradient(lambda at: cross_entropy(MLP.logits(w, at), data.y)[0], x)
    x_s, _ = pseudo_data(MLP, w, x, data.y, 0.1, 1)
    np.testing.assert_allclose(x_s, x + 0.1 * np.sign(uphill), atol=1e-12)


def test_pseudo_data_leave_their_labels():
    w, data = weights(MLP, 1), dataset(samples=30)
    x_s, _ = pseudo_data(MLP, w, data.x, data.y, 0.1, 10)
    assert cross_entropy(MLP.logits(w, x_s), data.y)[0] > cross_entropy(MLP.logits(w, data.x), data.y)[0] + 0.1
    assert x_s.dtype == np.float32


def test_clamped_pseudo_data_stay_in_the_range_of_the_batch():
    w, data = weights(MLP, 1), dataset(samples=30)
    free, _ = pseudo_data(MLP, w, data.x, data.y, 0.5, 10)
    clamped, _ = pseudo_data(MLP, w, data.x, data.y, 0.5, 10, clamp_inputs=True)
    assert free.max() > data.x.max()
    assert clamped.max() <= data.x.max()
    assert clamped.min() >= data.x.min()


def test_an_input_without_slope_does_not_move():
    flat = np.zeros(MLP.layout.size)
    x = dataset(samples=3).x
    assert np.array_equal(pseudo_data(MLP, flat, x, np.array([0, 1, 2]), 0.1, 5)[0], x)


# ------------------------------------------------------------------ the device half


def by_hand(algorithm, w_old, x, y, steps):
    """The steps of section 3.2, written out for one batch that holds all data."""
    here, w = site(MLP, dataset()), w_old
    x_s, y_s = pseudo_data(MLP, w_old, x, y, algorithm.eta_s, algorithm.pseudo_steps)
    x_p, _ = pseudo_data(MLP, w_old, x, y, algorithm.ratio * algorithm.eta_s, algorithm.pseudo_steps)
    for _ in range(steps):
        slow = algorithm.gamma * w + (1 - algorithm.gamma) * w_old
        g = gradient(here, slow, x, y)
        if algorithm.mg:
            g_m = gradient(here, slow, x_s, np.full((len(x), 3), 1 / 3))
            g = g - (g @ g_m) / (g_m @ g_m) * g_m
        w = w - algorithm.lr * g
        g_s, g_p = gradient(here, (w + w_old) / 2, x_s, y_s), gradient(here, (w + w_old) / 2, x_p, y)
        w = w - max((w - w_old) @ g_s / (g_s @ g_s), 0) * g_s
        w = w - max((w - w_old) @ g_p / (g_p @ g_p), 0) * g_p
    return w


@pytest.mark.parametrize("mg", [False, True])
@pytest.mark.parametrize("pairing", ["fixed", "cycle"])
def test_the_walk_is_the_one_written_out_by_hand(mg, pairing):
    data, w = dataset(samples=12), weights(MLP, dtype=np.float64)
    algorithm = FedReg(batch=12, epochs=4, gamma=0.3, eta_s=0.05, mg=mg, pairing=pairing)
    update, _ = algorithm.train(Task(1, w), {}, site(MLP, Dataset(data.x.astype(np.float64), data.y, 3)))
    expected = by_hand(algorithm, w, data.x.astype(np.float64), data.y, 4)
    np.testing.assert_allclose(w + update.delta, expected, atol=1e-10)
    assert update.steps == 4


def test_the_first_step_does_not_depend_on_gamma():
    w, data = weights(MLP), dataset()
    first = [FedReg(gamma=gamma, batches=1).train(Task(1, w), {}, site(MLP, data))[0].delta for gamma in (0, 0.3, 1)]
    assert np.array_equal(first[0], first[1])
    assert np.array_equal(first[0], first[2])
    second = [FedReg(gamma=gamma, batches=2).train(Task(1, w), {}, site(MLP, data))[0].delta for gamma in (0, 1)]
    assert not np.array_equal(*second)


def test_a_vanishing_rate_leaves_the_model_where_it_is():
    w = weights(MLP, dtype=np.float64)
    update, _ = FedReg(lr=1e-300, epochs=3).train(Task(1, w), {}, site(MLP, dataset()))
    assert not update.delta.any()


def test_training_does_not_touch_the_device_s_data_nor_the_received_model():
    data, w = dataset(), weights(MLP)
    x, start = data.x.copy(), w.copy()
    FedReg(epochs=2, mg=True).train(Task(1, w), {}, site(MLP, data))
    assert np.array_equal(data.x, x)
    assert np.array_equal(w, start)


class Counting(Mlp):
    """Counts the input gradients asked of it."""

    inputs = 0

    def input_gradient(self, w, x, dz):
        self.inputs += 1
        return super().input_gradient(w, x, dz)


def test_pseudo_data_are_made_once_a_round_and_only_as_many_as_the_budget_uses():
    model, data = Counting(4, 5, 3), dataset(samples=40)
    FedReg(batch=10, epochs=3).train(Task(1, weights(model)), {}, site(model, data))
    assert model.inputs == 2 * 10 * 4  # two sets, ten steps, four batches; not once per epoch
    model.inputs = 0
    update, _ = FedReg(batch=10, epochs=3).train(Task(1, weights(model), Budget(batches=2)), {}, site(model, data))
    assert (update.steps, model.inputs) == (2, 2 * 10 * 2)


def test_fixed_and_cycled_pairings_differ_after_the_first_epoch():
    w, data = weights(MLP), dataset()
    fixed, cycled = (
        FedReg(pairing=pairing, epochs=2).train(Task(1, w), {}, site(MLP, data))[0].delta
        for pairing in ("fixed", "cycle")
    )
    assert not np.array_equal(fixed, cycled)


def test_statistics_move_as_in_fedavg_and_are_not_corrected():
    model = Linear(4, 3, statistics=True)
    w, k, data = weights(model), model.layout.trainable, dataset(samples=10)
    ours, _ = FedReg(batch=10, epochs=3).train(Task(1, w), {}, site(model, data))
    plain, _ = FedAvg(batch=10, epochs=3).train(Task(1, w), {}, site(model, data))
    np.testing.assert_allclose(ours.delta[k:], plain.delta[k:], rtol=1e-5)
    assert not np.array_equal(ours.delta[:k], plain.delta[:k])


def test_traffic_and_state_equal_fedavg_s_and_every_device_counts_the_same():
    play = Play(FedReg(), fleet(model=MLP), weights(MLP)).rounds(2)
    assert play.plan == {}
    assert all(update.extra == {} and update.delta.shape == (MLP.layout.size,) for update in play.updates.values())
    assert {update.weight for update in play.updates.values()} == {1.0}
    assert all(state == {} for state in play.devices.values())


def test_one_client_s_model_is_the_server_s():
    play = Play(FedReg(), fleet(1, MLP), start := weights(MLP)).rounds(1)
    assert np.array_equal(play.params, start + play.updates["pi-0"].delta)


def test_data_that_cannot_be_confused_are_refused():
    real = Dataset(np.ones((4, 4), np.float32), np.ones(4, np.float32), 0)
    with pytest.raises(ConfigError, match="classes"):
        FedReg().train(Task(1, weights(MLP)), {}, site(MLP, real))
    tokens = Dataset(np.ones((4, 4), np.int64), np.zeros(4, np.int64), 3)
    with pytest.raises(ConfigError, match="int64"):
        FedReg().train(Task(1, weights(MLP)), {}, site(MLP, tokens))
