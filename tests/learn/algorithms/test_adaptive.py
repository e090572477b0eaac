"""Adam, Yogi and Adagrad at the coordinator, against the formulas of the paper in double precision."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, weights

from edgefl.learn.algorithms.adaptive import FedAdagrad, FedAdam, FedYogi
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.registry import stage
from edgefl.learn.contract import Draft

BETA1, BETA2, TAU, RATE = 0.8, 0.95, 0.01, 0.3
SPREADS = {
    "adam": lambda v, d: BETA2 * v + (1 - BETA2) * d**2,
    "yogi": lambda v, d: v - (1 - BETA2) * d**2 * np.sign(v - d**2),
    "adagrad": lambda v, d: v + d**2,
}


@pytest.mark.parametrize("name", SPREADS)
def test_steps_are_those_of_the_paper(name):
    rng, statistics = np.random.default_rng(3), Linear(4, 3, statistics=True)
    site, k = fleet(1, statistics)["pi-0"], statistics.layout.trainable
    parameters = {"rate": RATE, "beta1": BETA1, "tau": TAU} | ({} if name == "adagrad" else {"beta2": BETA2})
    here, state = stage({"name": name, **parameters}), {}
    m, v = np.zeros(k), np.full(k, TAU**2)
    for round in range(1, 5):
        step = (0.1 * rng.standard_normal(statistics.layout.size)).astype(np.float32)
        m = BETA1 * m + (1 - BETA1) * step[:k]
        v = SPREADS[name](v, step[:k].astype(np.float64))
        draft, state = here.apply(Draft(round, np.zeros_like(step), {}, step), state, site)
        np.testing.assert_allclose(draft.step[:k], RATE * m / (np.sqrt(v) + TAU), rtol=2e-5)
        assert (draft.step[k:] == step[k:]).all()


@pytest.mark.parametrize("algorithm", [FedAdam(), FedYogi(), FedAdagrad()])
def test_devices_train_as_in_fedavg(algorithm):
    model = Linear(4, 3)
    ours, plain = (Play(one, fleet(3, model), weights(model)).rounds(1) for one in (algorithm, FedAvg()))
    for name, update in ours.updates.items():
        assert (update.delta == plain.updates[name].delta).all()
    assert not (ours.params == plain.params).all()
