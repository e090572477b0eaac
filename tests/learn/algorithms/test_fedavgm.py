import numpy as np
from plays import Play, fleet
from toys import Linear, weights

from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedavgm import FedAvgM


def play(algorithm, rounds, model=None):
    model = model or Linear(4, 3)
    return Play(algorithm, fleet(3, model), weights(model)).rounds(rounds)


def test_without_momentum_it_is_fedavg_bit_for_bit():
    assert (play(FedAvgM(beta=0.0), 3).params == play(FedAvg(), 3).params).all()


def test_the_first_round_is_fedavgs():
    assert (play(FedAvgM(beta=0.9), 1).params == play(FedAvg(), 1).params).all()


def test_the_second_step_is_the_mean_plus_beta_times_the_first():
    game = play(FedAvgM(beta=0.5, rate=2.0, weights="uniform"), 1)
    at, first = game.params, game.server["momentum"]["m"]
    game.rounds(1)
    mean = np.mean([u.delta for u in game.updates.values()], axis=0)
    np.testing.assert_allclose(game.params - at, 2 * (0.5 * first + mean), rtol=1e-4, atol=1e-6)


def test_statistics_have_no_momentum():
    model = Linear(4, 3, statistics=True)
    game = play(FedAvgM(weights="uniform"), 1, model)
    at = game.params
    game.rounds(1)
    mean = np.mean([u.delta for u in game.updates.values()], axis=0)
    k = model.layout.trainable
    np.testing.assert_allclose((game.params - at)[k:], mean[k:], atol=1e-6)
    assert len(game.server["momentum"]["m"]) == k
