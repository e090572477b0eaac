"""Local optimisers against PyTorch's, schedules against their formulas, and what is refused."""

from dataclasses import replace
from math import cos, pi

import numpy as np
import pytest
import torch
from tiny import site

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Layout
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.contract import Task
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.rule import Rule
from edgefl.learn.training.descent import step_plan
from edgefl.learn.training.optimisers import Optimiser
from edgefl.learn.training.rates import Rates, scheduled

LAYOUT = Layout(("w", "running_mean"), ((6,), (2,)), buffers=1)
THEIRS = {
    "sgd": (Optimiser(), lambda w: torch.optim.SGD([w], lr=0.05, momentum=0.9, weight_decay=0.01)),
    "nesterov": (
        Optimiser(nesterov=True),
        lambda w: torch.optim.SGD([w], lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (
        Optimiser(name="adam", beta1=0.8),
        lambda w: torch.optim.Adam([w], lr=0.05, betas=(0.8, 0.999), weight_decay=0.01),
    ),
    "adamw": (Optimiser(name="adamw"), lambda w: torch.optim.AdamW([w], lr=0.05, weight_decay=0.01)),
}


@pytest.mark.parametrize("name", THEIRS)
def test_steps_are_those_of_pytorch_and_statistics_follow_their_own(name):
    ours, make = THEIRS[name]
    rng = np.random.default_rng(1)
    w = rng.standard_normal(8)
    theirs = torch.tensor(w[:6].copy(), requires_grad=True)
    optimiser, move = make(theirs), ours.begin(LAYOUT, Rule(0.05, 0.9, 0.01))
    for _ in range(6):
        g = rng.standard_normal(8)
        theirs.grad = torch.tensor(g[:6].copy())
        optimiser.step()
        before, w = w, move(w, g)
        np.testing.assert_allclose(w[:6], theirs.detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(w[6:], before[6:] - g[6:])


def test_an_optimiser_begins_anew_with_every_round():
    algorithm, start = FedAvg(optimiser="adam", lr=0.01, batch=12), np.zeros(site().model.layout.size, np.float32)
    first, again = (algorithm.train(Task(1, start), {}, site())[0].delta for _ in range(2))
    assert (first == again).all()
    np.testing.assert_allclose(np.abs(first[np.abs(first) > 0]), 0.01, rtol=1e-3)  # the first step of Adam


def test_graphs_take_plain_steps_alone():
    assert step_plan(FedProx(), cross_entropy) == step_plan(FedProx(optimiser="sgd"), cross_entropy)
    assert step_plan(FedProx(optimiser="adam"), cross_entropy) is None


def test_the_elastic_band_is_part_of_the_gradient_whatever_the_optimiser():
    start = np.ones(site().model.layout.size, np.float32)
    loose, tight = (
        FedProx(optimiser="adamw", lr=0.1, mu=mu, epochs=5).train(Task(1, start), {}, site())[0] for mu in (0, 9)
    )
    assert np.linalg.norm(tight.delta) < 0.5 * np.linalg.norm(loose.delta)


@pytest.mark.parametrize(
    ("rates", "factors"),
    [
        (Rates(), [1, 1, 1, 1]),
        (Rates(warmup=3), [1 / 4, 2 / 4, 3 / 4, 1]),
        (Rates(name="step", every=2, factor=0.1), [1, 1, 0.1, 0.1, 0.01]),
        (Rates(name="step", every=1, factor=0.5, warmup=1), [0.5, 1, 0.5, 0.25]),
        (Rates(name="cosine", rounds=4), [1, (1 + cos(pi / 4)) / 2, 0.5, (1 + cos(3 * pi / 4)) / 2]),
        (Rates(name="cosine", rounds=2, floor=0.2), [1, 0.6, 0.6, 0.6]),
    ],
)
def test_a_schedule_follows_from_the_round(rates, factors):
    np.testing.assert_allclose([rates.at(round) for round in range(1, len(factors) + 1)], factors)


def test_the_rate_of_a_round_is_the_algorithms_own_times_its_factor():
    algorithm = FedAvg(lr=0.4, lr_schedule={"name": "step", "every": 1, "factor": 0.5})
    assert scheduled(algorithm, 3) == replace(algorithm, lr=0.1)
    assert scheduled(FedAvg(), 3) == FedAvg()


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        ({"name": "scaffold", "optimiser": "adam"}, "the steps of 'scaffold' are its own"),
        ({"name": "pfedme", "optimiser": "adam"}, "the steps of 'pfedme' are its own"),
        ({"name": "fedgc", "lr_schedule": "step"}, "counts with algorithm.lr"),
        ({"name": "fedavg", "lr_schedule": "cosine"}, "a cosine needs its end"),
        ({"name": "fedavg", "optimiser": "adam", "momentum": 0.9}, "set the momentum to 0"),
        ({"name": "fedavg", "optimiser": {"name": "sgd", "nesterov": True}}, "set algorithm.momentum too"),
        ({"name": "fedavg", "optimiser": "rmsprop"}, "'sgd', 'adam' or 'adamw'"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(algorithm, says):
    with pytest.raises(ConfigError, match=says):
        parse(RunFile, {"algorithm": algorithm, "rounds": {"cohort": 2}}, "run.toml", (), {})
