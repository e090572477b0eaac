"""MimeLite: its two halves and its share of B5."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import weights as shares_of
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.mimelite import MimeLite, Statistics, full_gradient
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.training.local import gradient

MLP = Mlp(4, 5, 3)


def test_with_beta_zero_it_is_fedavg():
    start = weights(MLP)
    ours = Play(MimeLite(beta=0.0), fleet(model=MLP), start).rounds(3)
    assert np.array_equal(ours.params, Play(FedAvg(), fleet(model=MLP), start).rounds(3).params)


def test_a_step_mixes_the_fresh_gradient_with_the_frozen_momentum():
    start, here = weights(MLP, dtype=np.float64), site(MLP, dataset(samples=20))
    m, w = np.random.default_rng(0).standard_normal(MLP.layout.size), start
    for _ in range(3):
        w = w - 0.1 * (0.25 * gradient(here, w, here.data.x, here.data.y) + 0.75 * m)
    update, state = MimeLite(beta=0.75, batch=20, epochs=3).train(Task(1, start, extra={"m": m}), {}, here)
    np.testing.assert_allclose(start + update.delta, w, atol=1e-10)
    assert state == {}


@pytest.mark.parametrize("batch", [1, 7, 40, 100])
def test_the_full_gradient_does_not_depend_on_the_batches_it_is_made_of(batch):
    w, here = weights(MLP, dtype=np.float64), site(MLP, dataset(samples=40))
    np.testing.assert_allclose(full_gradient(here, w, batch), gradient(here, w, here.data.x, here.data.y), atol=1e-12)


def test_a_device_sends_its_gradient_at_the_received_model():
    start, here = weights(MLP, dtype=np.float64), site(MLP, dataset())
    update, _ = MimeLite(epochs=3).train(Task(1, start, extra={"m": np.zeros_like(start)}), {}, here)
    expected = gradient(site(MLP, dataset()), start, here.data.x, here.data.y)
    np.testing.assert_allclose(update.extra["gradient"], expected, atol=1e-12)


def test_the_momentum_is_a_running_mean_of_the_weighted_gradients():
    play = Play(MimeLite(beta=0.9), fleet(model=MLP), weights(MLP, dtype=np.float64)).rounds()
    m = play.server["statistics"]["m"].copy()
    play.rounds()
    shares = shares_of(play.updates)
    fresh = sum(shares[device] * update.extra["gradient"] for device, update in play.updates.items())
    np.testing.assert_allclose(play.server["statistics"]["m"], 0.1 * fresh + 0.9 * m, atol=1e-12)


def test_two_vectors_go_down_and_two_come_up_in_every_round():
    play = Play(MimeLite(), fleet(model=MLP), weights(MLP))
    for _ in range(2):
        play.rounds()
        assert {key: value.shape for key, value in play.plan.items()} == {"m": (MLP.layout.size,)}
        for update in play.updates.values():
            assert {key: value.shape for key, value in update.extra.items()} == {"gradient": (MLP.layout.size,)}
            assert update.extra["gradient"].dtype == np.float32


def test_statistics_of_the_model_have_no_momentum():
    model = Linear(4, 3, statistics=True)
    play = Play(MimeLite(), fleet(model=model), weights(model)).rounds(2)
    plain = Play(FedAvg(), fleet(model=model), weights(model)).rounds(2)
    k = model.layout.trainable
    assert not play.server["statistics"]["m"][k:].any()
    np.testing.assert_allclose(play.params[k:], plain.params[k:], rtol=1e-5)


def test_the_stage_refuses_devices_that_send_no_gradient():
    zero = np.zeros(2, np.float32)
    with pytest.raises(ConfigError, match="'statistics' needs 'gradient'"):
        Statistics().apply(Draft(1, zero, {"pi-1": Update(zero, 1.0, 1)}, zero, population=1), {}, site())
