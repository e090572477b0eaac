"""FedDyn: its two halves and its share of B1 and B5."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, numeric_gradient, site, weights

from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.feddyn import Dynamic, FedDyn
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.losses import cross_entropy
from edgefl.learn.training.local import gradient

MLP = Mlp(4, 5, 3)


def test_a_device_with_h_zero_and_vanishing_alpha_walks_like_fedavg_s():
    start, data = weights(MLP, dtype=np.float64), dataset()
    plain, _ = FedAvg(epochs=3).train(Task(1, start), {}, site(MLP, data))
    gaps = []
    for alpha in (1e-2, 1e-4, 1e-6):
        update, _ = FedDyn(epochs=3, alpha=alpha).train(Task(1, start), {}, site(MLP, data))
        gaps.append(np.abs(update.delta - plain.delta).max())
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 1e-5


def test_a_step_follows_the_gradient_of_the_tilted_objective():
    start, data, rng = weights(MLP, dtype=np.float64), dataset(samples=20), np.random.default_rng(0)
    h, x = rng.standard_normal(MLP.layout.size), data.x.astype(np.float64)
    objective = lambda w: cross_entropy(MLP.logits(w, x), data.y)[0] - h @ w + 0.25 * np.sum((w - start) ** 2)  # noqa: E731
    w = start
    for _ in range(2):
        w = w - 0.1 * numeric_gradient(objective, w)
    algorithm = FedDyn(alpha=0.5, batch=20, epochs=2)
    update, after = algorithm.train(Task(1, start), {"h": h}, site(MLP, data))
    np.testing.assert_allclose(update.delta, w - start, atol=1e-7)
    np.testing.assert_allclose(after["h"], h - 0.5 * update.delta, atol=1e-12)


def test_the_server_by_hand():
    zero = np.zeros(1)
    updates = {"a": Update(np.array([2.0]), 1.0, 1), "b": Update(np.array([4.0]), 1.0, 1)}
    draft = Draft(1, zero, updates, np.array([3.0]), population=4)
    here = site(Linear(1, 1, bias=False))
    after, state = Dynamic(alpha=0.5).apply(draft, {"h": np.array([1.0])}, here)
    h = 1.0 - 0.5 / 4 * (2 + 4)
    np.testing.assert_allclose(state["h"], [h])
    np.testing.assert_allclose(after.step, [3.0 - h / 0.5])


def test_the_server_s_h_is_the_mean_of_all_h_i():
    play = Play(FedDyn(alpha=0.1), fleet(4, MLP), weights(MLP, dtype=np.float64))
    nothing = np.zeros(MLP.layout.size)
    for cohort in (("pi-0", "pi-2"), ("pi-1",), ("pi-0", "pi-1", "pi-3")):
        play.rounds(1, cohort)
        own = [play.devices.get(device, {}).get("h", nothing) for device in play.sites]
        np.testing.assert_allclose(play.server["dynamic"]["h"], np.mean(own, axis=0), atol=1e-12)


def test_devices_that_disagree_meet_at_the_optimum_of_the_mean_objective():
    sites, local = fleet(2, Linear(4, 3)), {"batch": 64, "epochs": 60, "weights": "uniform", "weight_decay": 0.1}

    def slope(w):
        return sum(gradient(here, w, here.data.x, here.data.y) + 0.1 * w for here in sites.values())

    ours = Play(FedDyn(alpha=0.5, **local), sites, np.zeros(15)).rounds(50).params
    plain = Play(FedAvg(**local), sites, np.zeros(15)).rounds(50).params
    assert np.abs(slope(ours)).max() < 1e-5
    assert np.abs(slope(plain)).max() > 1e-3


def test_one_vector_goes_down_and_one_comes_up():
    play = Play(FedDyn(), fleet(model=MLP), weights(MLP)).rounds(2)
    assert play.plan == {}
    assert all(update.extra == {} for update in play.updates.values())
    assert all(state["h"].shape == (MLP.layout.size,) for state in play.devices.values())
    assert play.params.dtype == np.float32


def test_statistics_are_averaged_and_not_tilted():
    model = Linear(4, 3, statistics=True)
    play = Play(FedDyn(), fleet(model=model), weights(model)).rounds(2)
    plain = Play(FedAvg(), fleet(model=model), weights(model)).rounds(2)
    k = model.layout.trainable
    assert not play.server["dynamic"]["h"][k:].any()
    np.testing.assert_allclose(play.params[k:], plain.params[k:], rtol=1e-5)


@pytest.mark.parametrize("alpha", [0, -1])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(ValueError, match="alpha"):
        FedDyn(alpha=alpha)
