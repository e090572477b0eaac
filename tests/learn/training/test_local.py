"""The loop all device halves share: how far it walks, over what, and how one step is taken."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import Tiny, clouds, site

from edgefl.base.errors import RunError
from edgefl.base.vector import Layout
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedgc import FedGC
from edgefl.learn.contract import Budget, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.training.local import Sgd, gradient, per_pass, shuffled, steps_asked, walk

W = np.zeros(4, np.float32)
PLAIN = Layout(("w",), ((2,),))


def one_more(w, x, y):
    return w + 1


class Clock:
    """Time that passes only where a step takes it."""

    def __init__(self):
        self.now = 100.0

    def site(self):
        return replace(site(), timer=lambda: self.now)

    def step(self, w, x, y):
        self.now += 1.0
        return w


@pytest.fixture
def clock():
    return Clock()


# ---- how far -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "batches", "budget", "steps"),
    [
        (1, None, None, 3),  # 12 samples in batches of 5: two full ones and a short one
        (2, None, None, 6),
        (0.4, None, None, 1),
        (0.01, None, None, 1),
        (None, None, None, 3),
        (7, 4, None, 4),  # batches win over epochs
        (1, None, 2, 2),
        (1, None, 99, 3),  # a budget never adds work
        (1, None, 0, 1),
    ],
)
def test_a_walk_takes_the_steps_it_was_asked_for(epochs, batches, budget, steps):
    walked = walk(W, one_more, site(), Budget(batches=budget), batch=5, epochs=epochs, batches=batches)
    assert walked.steps == steps
    assert walked.params.tolist() == [steps] * 4


def test_samples_are_those_of_the_batches_that_were_walked():
    assert walk(W, one_more, site(), Budget(), batch=5, epochs=1).samples == 12
    assert walk(W, one_more, site(), Budget(batches=2), batch=5, epochs=1).samples == 10


@pytest.mark.parametrize(("seconds", "steps"), [(3.0, 3), (2.5, 3), (100.0, 12), (0.0, 1)])
def test_a_walk_ends_when_its_seconds_are_over_but_takes_one_step(clock, seconds, steps):
    assert walk(W, clock.step, clock.site(), Budget(seconds=seconds), batch=1, epochs=1).steps == steps


def test_the_tighter_budget_wins(clock):
    assert walk(W, clock.step, clock.site(), Budget(batches=2, seconds=5.0), batch=1).steps == 2
    assert walk(W, clock.step, clock.site(), Budget(batches=5, seconds=2.0), batch=1).steps == 2


def test_who_watches_hears_of_every_step_and_may_end_the_work():
    heard = []

    def watch(steps):
        heard.append(steps)
        if steps == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk(W, one_more, replace(site(), watch=watch), Budget(), batch=1)
    assert heard == [1, 2]


def test_a_method_may_bring_its_own_batches():
    data = clouds(3)
    walked = walk(W, one_more, site(), Budget(), batch=1, batches=5, stream=iter([(data.x, data.y)] * 2))
    assert (walked.steps, walked.samples) == (2, 6)


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 5), st.none() | st.integers(0, 9))
def test_steps_asked_are_at_least_one_and_never_more_than_the_budget(samples, batch, epochs, most):
    asked = steps_asked(samples, batch, epochs, None, Budget(batches=most))
    assert 1 <= asked <= max(1, epochs * -(-samples // batch) if most is None else most)


# ---- over what -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 7), st.integers(0, 3))
def test_every_pass_visits_every_sample_once(samples, batch, seed):
    data = Dataset(np.arange(samples).reshape(-1, 1), np.arange(samples), samples)
    per_pass = -(-samples // batch)
    batches = list(islice(shuffled(data, batch, np.random.default_rng(seed)), 2 * per_pass))
    for one_pass in (batches[:per_pass], batches[per_pass:]):
        assert sorted(np.concatenate([y for _, y in one_pass])) == list(range(samples))
        assert all(np.array_equal(x[:, 0], y) for x, y in one_pass)


@given(st.integers(1, 40), st.integers(1, 9))
def test_with_batch_norm_a_lone_last_sample_waits_for_another_pass(samples, batch):
    data = Dataset(np.arange(samples).reshape(-1, 1), np.arange(samples), samples)
    count = per_pass(samples, batch, lone=False)
    sizes = [len(y) for _, y in islice(shuffled(data, batch, np.random.default_rng(0), lone=False), count)]
    assert count >= 1
    assert 1 not in sizes or batch == 1 or samples == 1
    assert samples - sum(sizes) == (1 if batch > 1 and samples > 1 and samples % batch == 1 else 0)


def test_each_pass_is_shuffled_anew():
    passes = islice(shuffled(clouds(50), 50, np.random.default_rng(0)), 3)
    assert len({x.tobytes() for x, _ in passes}) == 3


def test_data_without_a_sample_are_refused_and_do_not_hang():
    nothing = clouds().take(np.arange(0))
    with pytest.raises(RunError, match="no sample"):
        walk(W, one_more, site(nothing), Budget(), batch=4)


# ---- one step ------------------------------------------------------------------------------------------------------


def test_plain_descent():
    assert Sgd(PLAIN, lr=0.5)(np.array([1.0, 2.0]), np.array([2.0, -4.0])).tolist() == [0, 4]


def test_weight_decay_pulls_towards_zero():
    """1 - 0.5 (2 + 0.25 * 1) = -0.125 and 2 - 0.5 (-4 + 0.25 * 2) = 3.75."""
    sgd = Sgd(PLAIN, lr=0.5, weight_decay=0.25)
    assert sgd(np.array([1.0, 2.0]), np.array([2.0, -4.0])).tolist() == [-0.125, 3.75]


def test_momentum_remembers_earlier_gradients():
    """Velocities 1, 0.5 + 1, 0.75 + 1 with rate 1: the weights are -1, -2.5, -4.25."""
    sgd, w, g = Sgd(PLAIN, lr=1.0, momentum=0.5), np.zeros(2), np.ones(2)
    seen = []
    for _ in range(3):
        w = sgd(w, g)
        seen.append(w[0])
    assert seen == [-1, -2.5, -4.25]


def test_momentum_does_not_keep_hold_of_the_caller_s_gradient():
    sgd, g = Sgd(PLAIN, lr=1.0, momentum=0.5), np.ones(2)
    w = sgd(np.zeros(2), g)
    g[:] = 100
    assert sgd(w, np.ones(2)).tolist() == [-2.5, -2.5]


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.9, "weight_decay": 1}]
)
def test_statistics_move_by_exactly_their_entry(options):
    sgd = Sgd(Layout(("w", "mean"), ((1,), (2,)), 1), lr=0.01, **options)
    w = np.array([1, 10, 20], np.float32)
    for _ in range(2):
        w = sgd(w, np.array([5, 1, -2], np.float32))
    assert w[1:].tolist() == [8, 24]
    assert w.dtype == np.float32


def test_a_step_leaves_weights_and_gradient_alone():
    w, g = np.ones(2, np.float32), np.ones(2, np.float32)
    w.setflags(write=False)
    g.setflags(write=False)
    Sgd(PLAIN, lr=0.5, momentum=0.5, weight_decay=0.5)(w, g)
    assert w.tolist() == g.tolist() == [1, 1]


def test_the_gradient_at_zero_points_from_the_other_class_to_this_one():
    """Logits are zero, so dz = (1/2 - [y]) and the gradient of W is x' dz, here for one sample (2, 0) of class 0."""
    data = Dataset(np.array([[2.0, 0.0]], np.float32), np.array([0]), 2)
    assert gradient(site(data), W, data.x, data.y).tolist() == [-1, 1, 0, 0]


# ---- the shared hyper-parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "weight"), [("samples", 12), ("uniform", 1), ("batch", 10)])
def test_a_device_weighs_what_the_run_file_says(weights, weight):
    update, _ = FedAvg(batch=5, batches=2, weights=weights).train(Task(1, W), {}, site())
    assert update.weight == weight


def test_an_update_says_how_far_the_device_went_from_what_it_received():
    start = np.full(5, 3, np.float32)
    update, _ = FedAvg(batch=4, epochs=2).train(Task(1, start), {}, site(statistics=True))
    assert update.steps == 6
    assert update.delta[4] == 6  # the statistic that counts batches
    assert np.array_equal(start, np.full(5, 3))


def test_the_task_s_budget_reaches_the_walk():
    update, _ = FedAvg(batch=1, epochs=3).train(Task(1, W, Budget(batches=2)), {}, site())
    assert update.steps == 2


def test_a_round_begins_without_momentum():
    algorithm, here = FedAvg(momentum=0.9, batches=1), site()
    assert algorithm.sgd(here) is not algorithm.sgd(here)
    assert algorithm.sgd(here).velocity is None
    assert Tiny().layout.trainable == algorithm.sgd(here).trainable


# ── epochs and mini-batches ──────────────────────────────────────────────────────────────────────────────────


def test_who_asks_for_epochs_gets_epochs_also_where_the_paper_counts_in_mini_batches():
    asked = [{}, {"epochs": 2}, {"batches": 7}, {"epochs": 2, "batches": 7}]
    for make in (lambda table: FedGC(**table), lambda table: registry.algorithm({"name": "fedgc", **table})):
        assert [(fedgc.epochs, fedgc.batches) for fedgc in map(make, asked)] == [(1, 5), (2, None), (1, 7), (2, 7)]


def test_what_travels_is_what_was_asked():
    for table in ({}, {"epochs": 2}, {"batches": 7}):
        algorithm = registry.algorithm({"name": "fedgc", **table})
        assert registry.algorithm(registry.describe(algorithm)) == algorithm
