"""FedCurv: curvature, its sums, and its share of B1 and B5."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedcurv import Curvature, FedCurv, fisher, others
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.losses import log_softmax

MLP = Mlp(4, 5, 3)


def test_the_fisher_information_is_the_mean_of_squared_gradients_of_single_samples():
    w, data = weights(MLP, dtype=np.float64), dataset(samples=6)
    x = data.x.astype(np.float64)
    per_sample = [
        numeric_gradient(lambda at, i=i: log_softmax(MLP.logits(at, x[i : i + 1]))[0, data.y[i]], w) for i in range(6)
    ]
    np.testing.assert_allclose(fisher(site(MLP, data), w), np.mean(np.square(per_sample), axis=0), atol=1e-7)


def test_the_first_round_has_no_penalty_and_is_fedavg_s():
    start = weights(MLP)
    ours = Play(FedCurv(lam=0.1), fleet(model=MLP), start)
    plain = Play(FedAvg(), fleet(model=MLP), start)
    assert np.array_equal(ours.rounds().params, plain.rounds().params)
    assert not np.array_equal(ours.rounds().params, plain.rounds().params)


def test_without_lambda_it_is_fedavg_in_every_round():
    start = weights(MLP)
    ours = Play(FedCurv(lam=0.0), fleet(model=MLP), start).rounds(3)
    assert np.array_equal(ours.params, Play(FedAvg(), fleet(model=MLP), start).rounds(3).params)


def test_the_spring_is_the_gradient_of_the_others_penalty():
    """One full-batch step differs from FedAvg's by lr times d/dw lam sum F_k (w - theta_k)^2."""
    start, data, rng = weights(MLP, dtype=np.float64), dataset(samples=20), np.random.default_rng(0)
    f, theta = rng.random((3, MLP.layout.size)), rng.standard_normal((3, MLP.layout.size))
    sums = {"P": f.sum(axis=0), "Q": (f * theta).sum(axis=0)}
    own = {"F": f[0], "Q": f[0] * theta[0]}
    update, _ = FedCurv(lam=0.3, batch=20).train(Task(2, start, extra=sums), own, site(MLP, data))
    plain, _ = FedAvg(batch=20).train(Task(2, start), {}, site(MLP, data))
    pull = numeric_gradient(lambda at: 0.3 * np.sum(f[1:] * (at - theta[1:]) ** 2), start)
    np.testing.assert_allclose(update.delta, plain.delta - 0.1 * pull, atol=1e-7)


def test_a_device_takes_out_exactly_its_own_share():
    play = Play(FedCurv(), fleet(3, MLP), weights(MLP)).rounds(3)
    rows, sums = play.server["curvature"], play.algorithm.plan(4, play.params, play.server)
    for device in play.sites:
        own = play.devices[device]
        assert np.array_equal(own["F"], rows[f"F {device}"])  # to the last bit, though theta is computed on both sides
        assert np.array_equal(own["Q"], rows[f"Q {device}"])
        p, q = others(sums, own)
        rest = [other for other in play.sites if other != device]
        np.testing.assert_allclose(p, sum(rows[f"F {other}"] for other in rest), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(q, sum(rows[f"Q {other}"] for other in rest), rtol=1e-4, atol=1e-6)


def test_taking_out_a_share_does_not_change_the_sums():
    sums = {"P": np.array([3.0, 1.0]), "Q": np.array([6.0, 1.0])}
    task = Task(2, np.zeros(2), extra=sums)
    p, q = others(task.extra, {"F": np.array([1.0, 1.5]), "Q": np.array([2.0, 1.0])})
    np.testing.assert_array_equal(p, [2.0, 0.0])  # never negative
    np.testing.assert_array_equal(q, [4.0, 0.0])
    first, _ = others(sums, {})
    first += 1
    np.testing.assert_array_equal(sums["P"], [3.0, 1.0])
    np.testing.assert_array_equal(sums["Q"], [6.0, 1.0])


def test_a_newer_share_replaces_the_older_and_absent_devices_stay_in_the_sums():
    zero = np.zeros(1)
    updates = {"a": Update(np.array([1.0]), 1.0, 1, {"F": np.array([2.0])})}
    state = {"F a": np.array([9.0]), "Q a": np.array([9.0]), "F b": np.array([1.0]), "Q b": np.array([5.0])}
    draft = Draft(2, np.array([3.0]), updates, zero, population=2)
    same, after = Curvature().apply(draft, state, site())
    assert same is draft
    assert (after["P"], after["Q"]) == (3.0, 2.0 * 4.0 + 5.0)


def test_a_single_device_feels_no_spring():
    start = weights(MLP)
    alone = Play(FedCurv(lam=1.0), fleet(1, MLP), start).rounds(3)
    assert np.array_equal(alone.params, Play(FedAvg(), fleet(1, MLP), start).rounds(3).params)


def test_three_vectors_go_down_and_two_come_up_in_every_round():
    play = Play(FedCurv(), fleet(model=MLP), weights(MLP))
    for _ in range(2):
        play.rounds()
        assert {key: value.shape for key, value in play.plan.items()} == dict.fromkeys(("P", "Q"), (MLP.layout.size,))
        for update in play.updates.values():
            assert {key: value.shape for key, value in update.extra.items()} == {"F": (MLP.layout.size,)}
            assert update.extra["F"].dtype == np.float32


def test_statistics_have_no_curvature():
    model = Linear(4, 3, statistics=True)
    play = Play(FedCurv(lam=0.1), fleet(model=model), weights(model)).rounds(2)
    plain = Play(FedAvg(), fleet(model=model), weights(model)).rounds(2)
    k = model.layout.trainable
    assert not play.server["curvature"]["P"][k:].any()
    np.testing.assert_allclose(play.params[k:], plain.params[k:], rtol=1e-5)


def test_the_stage_refuses_devices_that_send_no_curvature():
    zero = np.zeros(2, np.float32)
    with pytest.raises(ConfigError, match="'curvature' needs 'F'"):
        Curvature().apply(Draft(1, zero, {"pi-1": Update(zero, 1.0, 1)}, zero, population=1), {}, site())
