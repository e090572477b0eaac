"""FedAvg and FedProx: B1 (without its term FedProx is FedAvg) and B4 (one device is plain descent)."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.contract import Task
from edgefl.learn.training.descent import pull
from edgefl.learn.training.local import gradient

MLP = Mlp(4, 5, 3)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 0.01}, {"batches": 7, "batch": 3}])
def test_fedprox_without_its_band_is_fedavg_bit_for_bit(options):
    start = weights(MLP)
    prox = Play(FedProx(mu=0, epochs=2, **options), fleet(model=MLP), start).rounds(3)
    plain = Play(FedAvg(epochs=2, **options), fleet(model=MLP), start).rounds(3)
    assert prox.params.tobytes() == plain.params.tobytes()


def test_one_device_with_one_full_batch_is_gradient_descent():
    start, data = weights(MLP), dataset(samples=20)
    here = site(MLP, data)
    play = Play(FedAvg(lr=0.5, batch=20), {"pi": here}, start).rounds()
    expected = start - np.float32(0.5) * gradient(here, start, data.x, data.y)
    np.testing.assert_allclose(play.params, expected, atol=1e-6)


def test_one_full_batch_step_on_every_device_is_one_step_on_all_their_data():
    """Weighted by samples, the mean of gradients is the gradient of the mean."""
    start, parts = weights(MLP, dtype=np.float64), [dataset(samples=n, seed=n) for n in (10, 30)]
    play = Play(FedAvg(lr=0.5, batch=99), {str(i): site(MLP, part) for i, part in enumerate(parts)}, start).rounds()
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    np.testing.assert_allclose(play.params, start - 0.5 * gradient(site(MLP), start, x, y), atol=1e-12)


def test_the_band_pulls_towards_the_received_model_and_leaves_statistics_alone():
    w, anchor = np.array([3.0, 1.0, 9.0]), np.array([1.0, 1.0, 1.0])
    assert pull(0.5, w, anchor, trainable=2).tolist() == [1, 0, 0]
    assert w.tolist() == [3, 1, 9]


def test_the_first_step_of_fedprox_is_fedavg_s_and_the_second_is_held_back():
    task, one, two = Task(1, weights(MLP)), {"batch": 20, "batches": 1}, {"batch": 20, "batches": 2}
    data = dataset(samples=20)

    def far(algorithm):
        return np.linalg.norm(algorithm.train(task, {}, site(MLP, data))[0].delta)

    assert far(FedProx(mu=1, **one)) == far(FedAvg(**one))
    assert far(FedProx(mu=1, **two)) < far(FedAvg(**two))


def test_a_band_tighter_than_descent_can_follow_stays_near():
    """With lr * mu = 1 every step begins at the received model: w' = w0 - lr g(w)."""
    task, data = Task(1, weights(MLP, dtype=np.float64)), dataset(samples=20)
    here = site(MLP, data)
    update, _ = FedProx(lr=0.1, mu=10, batch=20, batches=2).train(task, {}, here)
    first = task.params - 0.1 * gradient(here, task.params, data.x, data.y)
    np.testing.assert_allclose(update.delta, -0.1 * gradient(here, first, data.x, data.y), atol=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx()])
def test_devices_keep_nothing_are_told_nothing_and_learn(algorithm):
    model = Linear(4, 3)
    play = Play(algorithm, fleet(model=model), np.zeros(model.layout.size, np.float32)).rounds(10)
    assert play.plan == {}
    assert set(map(str, play.devices.values())) == {"{}"}
    data = dataset(samples=100, seed=99)
    assert (model.logits(play.params, data.x).argmax(axis=1) == data.y).mean() > 0.8


# ---- the registry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(registry.algorithm_registry()))
def test_every_algorithm_is_found_by_its_name_and_survives_its_table(name):
    algorithm = registry.algorithm({"name": name})
    assert algorithm.name == name
    assert registry.algorithm(registry.describe(algorithm)) == algorithm
    assert all(stage.name in registry.stage_registry() for stage in algorithm.stages())


@pytest.mark.parametrize("name", sorted(registry.stage_registry()))
def test_every_stage_is_found_by_its_name_and_survives_its_table(name):
    stage = registry.stage({"name": name})
    assert stage.name == name
    assert registry.stage(registry.describe(stage)) == stage


@pytest.mark.parametrize("table", [{}, {"name": None}, {"name": 3}, {"name": "fedagv"}])
def test_what_is_not_on_the_shelf_is_refused(table):
    with pytest.raises(ConfigError, match=r"algorithm\.name = .* is not in the registry"):
        registry.algorithm(table)


def test_every_setting_is_checked():
    with pytest.raises(ConfigError, match=r"algorithm 'fedprox': mu = -1: Input should be greater than or equal to 0"):
        registry.algorithm({"name": "fedprox", "mu": -1})
