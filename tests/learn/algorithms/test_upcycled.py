"""Upcycled-FL: invariants U1 to U7 and its share of B1, B4 and B5."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import Play, fleet
from pydantic import ValidationError
from toys import Linear, Mlp, dataset, numeric_gradient, site, weights

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.algorithms.upcycled import Upcycle, Upcycled, even_step, kappa
from edgefl.learn.contract import Budget, Draft, Site, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import cross_entropy, double_softmax, squared_error
from edgefl.learn.privacy import Objective, Output, output_epsilon, tilt
from edgefl.learn.privacy.linear import LinearLayer

ALIKE = {"lr": 0.1, "epochs": 1, "momentum": 0.0}  # how all of a test train
MLP = Mlp(4, 5, 3)


class Untouchable:
    """Data that may be counted but not looked at."""

    classes = 3

    def __len__(self) -> int:
        return 20

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"an even round looked at the data: {name}")


# ------------------------------------------------------------------ the two functions


@given(st.floats(1e-3, 10), st.floats(0, 100), st.floats(1e-3, 100))
def test_kappa_is_a_share_and_falls_with_lambda(mu, lam, more):
    assert 0 < kappa(mu, lam) <= 1
    assert kappa(mu, lam + more) < kappa(mu, lam)


def test_kappa_at_the_ends():
    assert kappa(0.3, 0.0) == 1  # the server's rate 1 + kappa is 2
    assert kappa(0.1, 1e12) < 1e-12  # even rounds idle
    assert kappa(0.1, 0.04) == pytest.approx(0.714, abs=1e-3)


def test_an_even_step_by_hand():
    local, current, previous = np.array([1.0, 2.0]), np.array([3.0, 3.0]), np.array([1.0, 5.0])
    np.testing.assert_array_equal(even_step(local, current, previous, 0.5), [2.0, 1.0])


@given(st.integers(0, 50), st.floats(0.01, 5), st.floats(0, 5))
def test_the_even_step_minimises_the_linearised_problem(seed, mu, lam):
    """At an exact odd solution, grad F = mu (previous - local); the even problem is then a quadratic."""
    local, current, previous = np.random.default_rng(seed).standard_normal((3, 4))

    def even_problem(w):
        linear = mu * (previous - local) @ (w - local)
        return linear + mu / 2 * np.sum((w - current) ** 2) + lam / 2 * np.sum((w - local) ** 2)

    w = even_step(local, current, previous, kappa(mu, lam))
    np.testing.assert_allclose(numeric_gradient(even_problem, w), 0, atol=1e-6)


def test_the_sqrt_schedule_shrinks_with_the_pair():
    stage = Upcycle(kappa=0.8, schedule="sqrt")
    assert [stage.at(r) for r in (1, 2, 3, 4, 17, 18)] == pytest.approx(
        [0.8, 0.8, 0.8 / 2**0.5, 0.8 / 2**0.5, 0.8 / 3, 0.8 / 3]
    )
    assert Upcycle(kappa=0.8).at(18) == 0.8


# ------------------------------------------------------------------ a pair of rounds


@pytest.mark.parametrize("schedule", ["constant", "sqrt"])
def test_device_form_and_server_form_give_the_same_model(schedule):
    common = {"mu": 0.5, "lam": 0.2, "schedule": schedule, "momentum": 0.5, "epochs": 2}
    start = weights(MLP, dtype=np.float64)
    server = Play(Upcycled(even="server", **common), fleet(model=MLP), start).rounds(6)
    device = Play(Upcycled(even="device", **common), fleet(model=MLP), start).rounds(6)
    np.testing.assert_allclose(device.params, server.params, atol=1e-12, rtol=0)
    assert np.abs(server.params - start).max() > 1e-3


def test_both_forms_agree_when_the_weights_are_the_batches_worked_through():
    start = weights(MLP, dtype=np.float64)
    common = {"weights": "batch", "batches": 2, "batch": 12}
    server = Play(Upcycled(even="server", **common), fleet(model=MLP), start).rounds(4)
    device = Play(Upcycled(even="device", **common), fleet(model=MLP), start).rounds(4)
    np.testing.assert_allclose(device.params, server.params, atol=1e-12, rtol=0)


def test_a_pair_is_fedprox_with_server_rate_one_plus_kappa():
    start = weights(MLP, dtype=np.float64)
    pair = Play(Upcycled(mu=0.1, lam=0.04, **ALIKE), fleet(model=MLP), start).rounds(2)
    once = Play(FedProx(mu=0.1, **ALIKE), fleet(model=MLP), start).rounds(1)
    np.testing.assert_allclose(pair.params - start, (1 + 0.1 / 0.14) * (once.params - start), atol=1e-12)


@pytest.mark.parametrize("even", ["server", "device"])
def test_with_kappa_zero_it_is_fedprox_and_even_rounds_idle(even):
    start = weights(MLP)
    ours = Play(Upcycled(kappa=0.0, mu=0.1, even=even, **ALIKE), fleet(model=MLP), start)
    fedprox = Play(FedProx(mu=0.1, **ALIKE), fleet(model=MLP), start)
    after_odd = ours.rounds(1).params
    assert np.array_equal(after_odd, fedprox.rounds(1).params)
    np.testing.assert_allclose(ours.rounds(1).params, after_odd, atol=1e-6 if even == "device" else 0)


def test_an_even_round_at_the_server_asks_nobody_and_sends_nothing():
    play = Play(Upcycled(), fleet(model=MLP), weights(MLP)).rounds(1)
    assert play.plan == {}
    assert all(update.extra == {} for update in play.updates.values())
    play.rounds(1)
    assert play.plan is None
    assert play.updates == {}


def test_an_even_round_on_a_device_touches_no_data():
    algorithm, start = Upcycled(even="device"), weights(MLP)
    odd, state = algorithm.train(Task(1, start), {}, site(MLP, dataset()))
    blind = Site(MLP, Untouchable(), np.random.default_rng(0))
    even, after = algorithm.train(Task(2, start + odd.delta), state, blind)
    np.testing.assert_allclose(even.delta, odd.delta * (0.1 / 0.14), rtol=1e-4, atol=1e-6)
    assert (even.weight, even.steps, even.extra) == (odd.weight, 0, {})
    assert set(after) == {"odd_updates"}  # the pair is over: nothing is kept but the count


def test_a_device_pushes_its_own_odd_model_and_not_the_mean():
    algorithm, start = Upcycled(even="device", kappa=0.5), weights(MLP, dtype=np.float64)
    odd, state = algorithm.train(Task(1, start), {}, site(MLP, dataset()))
    current = weights(MLP, seed=9, dtype=np.float64)  # the others moved the mean somewhere else
    even, _ = algorithm.train(Task(2, current), state, site(MLP, dataset()))
    np.testing.assert_allclose(current + even.delta, start + odd.delta + 0.5 * (current - start), atol=1e-12)


def test_a_device_without_an_odd_model_of_this_pair_stays_at_the_mean():
    algorithm, start = Upcycled(even="device"), weights(MLP)
    _, old = algorithm.train(Task(1, start), {}, site(MLP, dataset()))
    for state in ({}, old):
        update, _ = algorithm.train(Task(4, start), state, site(MLP, dataset()))
        assert not update.delta.any()
        assert update.weight == 40


def test_only_odd_updates_are_counted():
    play = Play(Upcycled(even="device"), fleet(model=MLP), weights(MLP)).rounds(5)
    assert [int(state["odd_updates"]) for state in play.devices.values()] == [3, 3, 3]
    assert all(state["odd_updates"].dtype == np.int64 for state in play.devices.values())


def test_a_fixed_point_stays():
    draft = Draft(1, weights(MLP), {}, np.zeros(MLP.layout.size, np.float32))
    here = site(MLP, dataset())
    state = {"previous": draft.params.copy(), "round": np.array(1)}
    after, _ = Upcycle().apply(replace(draft, round=2), state, here)
    assert not after.step.any()


def test_an_even_round_whose_odd_half_never_ended_moves_nothing():
    draft = Draft(4, weights(MLP), {}, np.zeros(MLP.layout.size, np.float32))
    state = {"previous": np.zeros(MLP.layout.size, np.float32), "round": np.array(1)}
    after, _ = Upcycle().apply(draft, state, site(MLP, dataset()))
    assert not after.step.any()


@pytest.mark.parametrize("even", ["server", "device"])
def test_statistics_are_averaged_and_never_pushed(even):
    model = Linear(4, 3, statistics=True)
    play = Play(Upcycled(even=even, lam=0.0), fleet(model=model), weights(model, dtype=np.float64)).rounds(1)
    odd, k = play.params, model.layout.trainable
    play.rounds(1)
    np.testing.assert_allclose(play.params[k:], odd[k:], atol=1e-12)
    assert np.abs(play.params[:k] - odd[:k]).max() > 1e-3


def test_an_exactly_solved_odd_round_satisfies_its_optimality_condition():
    model, data = Linear(3, 1, bias=False), Dataset(*_line(), 0)
    here = Site(model, data, seeds.stream(0, "odd"), squared_error)
    start, algorithm = np.array([1.0, -1.0, 0.5]), Upcycled(mu=0.7, lr=0.1, batch=30, epochs=2000)
    update, _ = algorithm.train(Task(1, start), {}, here)
    w = start + update.delta
    z, pullback = model.vjp(w, data.x)
    np.testing.assert_allclose(pullback(squared_error(z, data.y)[1]) + 0.7 * (w - start), 0, atol=1e-10)


def _line():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3))
    return x, x @ np.array([1.0, 2.0, 3.0]) + 0.1 * rng.standard_normal(30)


def test_the_budget_of_a_straggler_is_honoured():
    update, _ = Upcycled(epochs=20, batch=8).train(Task(1, weights(MLP), Budget(batches=3)), {}, site(MLP, dataset()))
    assert update.steps == 3


# ------------------------------------------------------------------ private versions


def test_output_perturbation_clips_the_whole_model_and_adds_noise_from_the_site_s_stream():
    start, plain = weights(MLP, dtype=np.float64, scale=3), Upcycled()
    trained = start + plain.train(Task(1, start), {}, site(MLP, dataset()))[0].delta
    assert np.linalg.norm(trained) > 2
    tiny = (
        start + Upcycled(privacy=Output(clip=2.0, sigma=1e-12)).train(Task(1, start), {}, site(MLP, dataset()))[0].delta
    )
    assert np.linalg.norm(tiny) == pytest.approx(2.0, abs=1e-9)
    np.testing.assert_allclose(tiny / 2, trained / np.linalg.norm(trained), atol=1e-9)
    private = Upcycled(privacy=Output(clip=2.0, sigma=0.5))
    noisy = [start + private.train(Task(1, start), {}, site(MLP, dataset()))[0].delta for _ in range(2)]
    assert np.array_equal(*noisy)
    assert 0.2 < np.std(noisy[0] - tiny) < 0.9


def test_the_even_step_of_a_private_device_starts_from_the_noisy_model():
    start, private = weights(MLP, dtype=np.float64), Upcycled(even="device", privacy=Output(clip=2.0, sigma=0.5))
    odd, state = private.train(Task(1, start), {}, site(MLP, dataset()))
    np.testing.assert_allclose(state["local"], start + odd.delta, atol=1e-12)
    assert int(state["odd_updates"]) == 1


class Softmax(Linear):
    """Softmax regression with its kernel as PyTorch has it: (outputs, inputs)."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self._layout = Layout(("weight", "bias"), ((classes, features), (classes,)))

    def logits(self, w: Vector, x: Array) -> Array:
        parts = self.layout.layers(w)
        return x @ parts["weight"].T + parts["bias"]


@pytest.mark.parametrize("kind", [Upcycled, FedProx])
def test_objective_perturbation_answers_with_the_minimiser_whatever_the_training_would_do(kind):
    data = dataset(classes=2, samples=60)
    data = Dataset(data.x / np.linalg.norm(data.x, axis=1).max(), data.y, 2)
    model, start = Softmax(4, 2), np.zeros(10, np.float32)
    answers = [
        kind(mu=0.5, privacy=Objective(alpha=5.0), **hyper).train(Task(1, start), {}, site(model, data))
        for hyper in ({}, {"lr": 0.5, "epochs": 3, "batch": 7, "momentum": 0.9})
    ]
    assert np.array_equal(answers[0][0].delta, answers[1][0].delta)
    (update, state), rng = answers[0], site(model, data).rng
    b = tilt(10, 5.0, rng)
    w = start + update.delta.astype(np.float64)
    left = LinearLayer(4, 2, bias=True).gradient(w, data.x.astype(np.float64), data.y) + 0.5 * w + b
    assert np.linalg.norm(left) < 1e-3  # the noise that covers what the search left open
    assert (update.steps, int(state["odd_updates"])) == (1, 1)


def test_objective_perturbation_refuses_a_network_with_hidden_layers():
    with pytest.raises(ConfigError, match="softmax regression"):
        Upcycled(privacy=Objective()).train(Task(1, weights(MLP)), {}, site(MLP, dataset()))


# ------------------------------------------------------------------ FedProx, which the paper compares with


def test_private_fedprox_in_an_odd_round_is_private_upcycled():
    start, private = weights(MLP, dtype=np.float64), {"privacy": Output(clip=2.0, sigma=0.5), "mu": 0.1}
    ours, theirs = (
        kind(**private, lr=0.1, epochs=2, momentum=0.5).train(Task(1, start), {}, site(MLP, dataset()))[0].delta
        for kind in (FedProx, Upcycled)
    )
    assert ours.any()
    assert np.array_equal(ours, theirs)


def test_every_update_of_private_fedprox_counts():
    private = FedProx(privacy=Output(clip=2.0, sigma=0.5))
    play = Play(private, fleet(model=MLP), weights(MLP)).rounds(3)
    assert {int(state["odd_updates"]) for state in play.devices.values()} == {3}
    assert private.price(2, 40, MLP.layout).of(3)["epsilon"] == output_epsilon(3, 2.0, 0.5, 1e-3)
    assert FedProx().price(2, 40, MLP.layout) is None
    assert Play(FedProx(), fleet(model=MLP), weights(MLP)).rounds(1).devices["pi-0"] == {}


def test_hyper_parameters_that_make_no_sense_are_refused():
    for wrong in ({"mu": 0}, {"lam": -1}, {"kappa": 1.5}, {"even": "both"}, {"schedule": "log"}, {"privacy": "yes"}):
        with pytest.raises(ValidationError):
            Upcycled(**wrong)


# ------------------------------------------------------------------ the loss of the published program


@given(st.integers(0, 1000))
def test_double_softmax_is_cross_entropy_of_the_probabilities(seed):
    rng = np.random.default_rng(seed)
    z, y = 3 * rng.standard_normal((5, 4)), rng.integers(0, 4, 5)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    loss, dz = double_softmax(z, y)
    assert loss == pytest.approx(cross_entropy(p, y)[0])
    np.testing.assert_allclose(dz, numeric_gradient(lambda at: double_softmax(at, y)[0], z), atol=1e-8)


def test_double_softmax_has_a_floor():
    loss, dz = double_softmax(np.array([[100.0, -100.0]], np.float32), np.array([0]))
    assert loss == pytest.approx(np.log(1 + np.exp(-1)), abs=1e-6)
    assert dz.dtype == np.float32
