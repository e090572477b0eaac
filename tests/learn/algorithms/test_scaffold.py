"""SCAFFOLD: its share of B1, B4 and B5."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.scaffold import Scaffold, Variates, gain
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.training.local import Sgd

MLP = Mlp(4, 5, 3)


def test_the_first_round_is_fedavg_s():
    start = weights(MLP)
    ours = Play(Scaffold(epochs=2), fleet(model=MLP), start)
    plain = Play(FedAvg(epochs=2), fleet(model=MLP), start)
    assert np.array_equal(ours.rounds().params, plain.rounds().params)
    assert not np.array_equal(ours.rounds().params, plain.rounds().params)


def test_c_is_always_the_mean_of_all_c_i():
    play = Play(Scaffold(), fleet(4, MLP), weights(MLP, dtype=np.float64))
    nothing = np.zeros(MLP.layout.size)
    for cohort in (("pi-0", "pi-2"), ("pi-1",), ("pi-0", "pi-1", "pi-3"), ("pi-2",)):
        play.rounds(1, cohort)
        own = [play.devices.get(device, {}).get("c_i", nothing) for device in play.sites]
        np.testing.assert_allclose(play.server["variates"]["c"], np.mean(own, axis=0), atol=1e-12)
    assert np.abs(play.server["variates"]["c"]).max() > 1e-3


def test_a_device_variate_is_the_mean_gradient_it_saw():
    """One full-batch step: c_i' = g(x), whatever c and c_i were."""
    start, data = weights(MLP, dtype=np.float64), dataset(samples=20)
    rng = np.random.default_rng(0)
    c, c_i = rng.standard_normal((2, MLP.layout.size))
    algorithm = Scaffold(batch=20, epochs=1)
    update, after = algorithm.train(Task(1, start, extra={"c": c}), {"c_i": c_i}, site(MLP, data))
    plain, _ = FedAvg(batch=20, epochs=1).train(Task(1, start), {}, site(MLP, data))
    np.testing.assert_allclose(after["c_i"], -plain.delta / algorithm.lr, atol=1e-10)
    np.testing.assert_allclose(update.extra["dc"], after["c_i"] - c_i, atol=1e-12)
    np.testing.assert_allclose(update.delta, plain.delta - algorithm.lr * (c - c_i), atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_gain_counts_how_far_a_constant_gradient_moves(momentum):
    sgd, w = Sgd(Linear(1, 1, bias=False).layout, lr=1.0, momentum=momentum), np.zeros(1)
    for steps in range(1, 8):
        w = sgd(w, np.ones(1))
        assert gain(steps, momentum) == pytest.approx(-w[0])


def test_with_momentum_a_variate_is_still_a_gradient():
    start, data = weights(MLP, dtype=np.float64), dataset(samples=20)
    zeros = np.zeros(MLP.layout.size)
    algorithm = Scaffold(batch=20, epochs=5, momentum=0.9, lr=1e-7)  # so short that the gradient does not change
    _, after = algorithm.train(Task(1, start, extra={"c": zeros}), {}, site(MLP, data))
    plain, _ = FedAvg(batch=20, epochs=1).train(Task(1, start), {}, site(MLP, data))
    np.testing.assert_allclose(after["c_i"], -plain.delta / 0.1, atol=1e-5)


def test_c_moves_by_the_answered_share_of_the_fleet_and_not_by_weights():
    zero = np.zeros(2)
    updates = {name: Update(zero, w, 1, {"dc": np.full(2, dc)}) for name, w, dc in (("a", 1.0, 2.0), ("b", 9.0, 4.0))}
    _, state = Variates().apply(Draft(1, zero, updates, zero, population=10), {"c": np.ones(2)}, site())
    np.testing.assert_allclose(state["c"], 1 + (2 / 10) * 3)


def test_the_server_rate_scales_the_step():
    start = weights(MLP, dtype=np.float64)
    whole, half = (Play(Scaffold(rate=rate), fleet(model=MLP), start).rounds().params for rate in (1.0, 0.5))
    np.testing.assert_allclose(half - start, 0.5 * (whole - start), atol=1e-12)


def test_two_vectors_go_down_and_two_come_up_in_every_round():
    play = Play(Scaffold(), fleet(model=MLP), weights(MLP))
    for _ in range(2):
        play.rounds()
        assert {key: value.shape for key, value in play.plan.items()} == {"c": (MLP.layout.size,)}
        for update in play.updates.values():
            assert {key: value.shape for key, value in update.extra.items()} == {"dc": (MLP.layout.size,)}
            assert update.extra["dc"].dtype == np.float32


def test_statistics_have_no_variate_and_are_averaged():
    model = Linear(4, 3, statistics=True)
    play = Play(Scaffold(), fleet(model=model), weights(model)).rounds(2)
    plain = Play(FedAvg(), fleet(model=model), weights(model)).rounds(2)
    k = model.layout.trainable
    assert not play.server["variates"]["c"][k:].any()
    np.testing.assert_allclose(play.params[k:], plain.params[k:], rtol=1e-5)


def test_the_stage_refuses_devices_that_send_no_variate():
    zero = np.zeros(2, np.float32)
    with pytest.raises(ConfigError, match=r"'variates' needs 'dc'.*pi-1"):
        Variates().apply(Draft(1, zero, {"pi-1": Update(zero, 1.0, 1)}, zero, population=1), {}, site())
