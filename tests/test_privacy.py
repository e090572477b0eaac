"""The accountants and the noise of private Upcycled-FL."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.algorithms.base import Site
from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError
from edgefl.privacy import (
    Objective,
    Output,
    calibrate_sigma,
    clipped,
    keep_spent,
    objective_epsilon,
    tilt,
    upcycled_delta,
    upcycled_epsilon,
)
from edgefl.vector import Layout

COUNTS = st.integers(1, 500)
SIZES = st.integers(1, 5000)
REALS = st.floats(0.05, 20)
DELTAS = st.floats(1e-9, 0.5)
PRICES = st.tuples(COUNTS, REALS, REALS, SIZES)  # odd updates, clip, sigma, samples


class Shape:
    """Only the layout of a model: the mechanisms look at nothing else."""

    def __init__(self, tensors: int = 1, buffers: int = 0) -> None:
        names = tuple(f"t{i}" for i in range(tensors + buffers))
        self.layout = Layout(names, tuple((3,) for _ in names), buffers)


def place(model: Shape | None = None, longest: float = 1.0, samples: int = 50, classes: int = 2) -> Site:
    x = np.zeros((samples, 3), np.float32)
    x[0, 1] = longest
    return Site(model or Shape(), Dataset(x, np.zeros(samples, np.int64), classes), np.random.default_rng(0))


def test_the_paper_s_own_comparison_comes_out():
    upcycled = upcycled_epsilon(40, clip=10, sigma=0.8, samples=224, delta=1e-3)
    fedprox = upcycled_epsilon(80, clip=10, sigma=1.0, samples=224, delta=1e-3)
    assert upcycled == pytest.approx(1.374, abs=5e-4)
    assert fedprox == pytest.approx(1.564, abs=5e-4)
    assert 1 - upcycled / fedprox == pytest.approx(0.121, abs=1e-3)


@pytest.mark.parametrize("sensitivity", ["paper", "worst_case"])
@given(price=PRICES, delta=DELTAS)
def test_delta_undoes_epsilon(price, delta, sensitivity):
    epsilon = upcycled_epsilon(*price, delta, sensitivity=sensitivity)
    back = upcycled_delta(*price, epsilon, sensitivity=sensitivity)
    assert math.log(back) == pytest.approx(math.log(delta), rel=1e-6)


@given(COUNTS, REALS, REALS, st.integers(1, 300), DELTAS)
def test_epsilon_is_the_minimum_of_the_moments_bound(odd, clip, sigma, samples, delta):
    a, wide = odd * clip**2 / (2 * samples**2 * sigma**2), math.log(1 / delta)
    orders = math.sqrt(wide / a) * np.exp(np.linspace(-1, 1, 201))
    assert upcycled_epsilon(odd, clip, sigma, samples, delta) == pytest.approx(
        np.min(a * (orders + 1) + wide / orders), rel=1e-9
    )


@given(COUNTS, REALS, REALS, SIZES, DELTAS)
def test_epsilon_grows_with_updates_and_clip_and_falls_with_noise_and_samples(odd, clip, sigma, samples, delta):
    epsilon = upcycled_epsilon(odd, clip, sigma, samples, delta)
    assert upcycled_epsilon(odd + 1, clip, sigma, samples, delta) > epsilon
    assert upcycled_epsilon(odd, clip * 1.01, sigma, samples, delta) > epsilon
    assert upcycled_epsilon(odd, clip, sigma * 1.01, samples, delta) < epsilon
    assert upcycled_epsilon(odd, clip, sigma, samples + 1, delta) < epsilon


@pytest.mark.parametrize("sensitivity", ["paper", "worst_case"])
@given(price=PRICES, epsilon=st.floats(1e-3, 50), delta=DELTAS)
def test_calibrated_noise_spends_exactly_the_target(price, epsilon, delta, sensitivity):
    odd, clip, _, samples = price
    sigma = calibrate_sigma(odd, clip, epsilon, samples, delta, sensitivity=sensitivity)
    spent = upcycled_epsilon(odd, clip, sigma, samples, delta, sensitivity=sensitivity)
    assert spent == pytest.approx(epsilon, rel=1e-9)


def test_the_worst_case_is_what_replacing_one_record_can_do_to_a_clipped_model():
    paper = upcycled_epsilon(5, 10, 0.8, 1, 1e-3)
    worst = upcycled_epsilon(5, 10, 0.8, 1, 1e-3, sensitivity="worst_case")
    a = 5 * (2 * 10) ** 2 / (2 * 0.8**2)
    assert worst == pytest.approx(a + 2 * math.sqrt(a * math.log(1e3)))
    assert worst > paper
    assert worst == upcycled_epsilon(5, 10, 0.8, 5000, 1e-3, sensitivity="worst_case")  # samples do not help


def test_no_update_costs_nothing():
    assert upcycled_epsilon(0, 10, 1, 100, 1e-3) == 0
    assert upcycled_delta(0, 10, 1, 100, 0.1) == 0
    assert objective_epsilon(0, 10, 1, 0.25, 100, 0.1) == 0


def test_below_its_range_the_theorem_promises_nothing():
    assert upcycled_delta(10, 10, 0.1, 10, 1e-6) == 1


def test_objective_epsilon_is_a_sum_over_the_odd_updates_made():
    one = 2 * 20 * 1 / 200 + 2.8 * 0.25 / (200 * 0.1)
    assert objective_epsilon(40, 20, 1, 0.25, 200, 0.1) == pytest.approx(40 * one)
    assert objective_epsilon(40, 20, 1, 0.25, 200, 0.1, terms="paper") == pytest.approx(41 * one)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"samples": 4}, "too few"),
        ({"classes": 3}, "two classes"),
        ({"feature_norm": 1.01}, "length 1.01"),
        ({"mu": 0.0}, "mu = 0"),
        ({"odd_updates": -1}, "negative"),
    ],
)
def test_objective_epsilon_refuses_what_the_theorem_does_not_cover(wrong, word):
    right = {"odd_updates": 1, "alpha": 20, "u1": 1, "u2": 0.25, "samples": 5, "mu": 0.1}
    assert objective_epsilon(**right) > 0  # 5 * 0.1 = 2 * 0.25: exactly enough
    with pytest.raises(ConfigError, match=word) as caught:
        objective_epsilon(**{**right, **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"sigma": 0}, {"clip": -1}, {"samples": 0}, {"delta": 1}, {"sensitivity": "best"}])
def test_upcycled_epsilon_refuses_impossible_numbers(wrong):
    right = {"odd_updates": 1, "clip": 1.0, "sigma": 1.0, "samples": 10, "delta": 1e-3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        upcycled_epsilon(**{**right, **wrong})


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.01, 50))
def test_a_clipped_model_is_no_longer_than_clip_and_keeps_its_direction(entries, clip):
    w = np.array(entries)
    short = clipped(w, clip)
    assert np.linalg.norm(short) <= clip * (1 + 1e-12)
    if np.linalg.norm(w) <= clip:
        assert np.array_equal(short, w)
    else:
        np.testing.assert_allclose(short * np.linalg.norm(w), w * clip, rtol=1e-9, atol=1e-9)


def test_output_noise_has_deviation_sigma_and_keeps_the_dtype():
    w = np.full(20000, 1.0, np.float32)
    seen = Output(clip=3, sigma=0.8).release(w, place())
    noise = seen - clipped(w, 3)
    assert seen.dtype == np.float32
    assert np.std(noise) == pytest.approx(0.8, rel=0.03)  # not sigma squared, 0.64
    assert abs(np.mean(noise)) < 0.03


@settings(max_examples=20)
@given(st.integers(1, 60), st.floats(0.5, 50))
def test_a_tilt_is_as_long_as_a_gamma_draw_of_the_number_of_parameters(size, alpha):
    rng = np.random.default_rng(size)
    lengths = [np.linalg.norm(tilt(size, alpha, rng)) for _ in range(400)]
    assert np.mean(lengths) == pytest.approx(size / alpha, rel=6 / math.sqrt(400 * size))


def test_a_tilt_has_no_preferred_direction():
    rng = np.random.default_rng(3)
    directions = np.array([b / np.linalg.norm(b) for b in (tilt(3, 5.0, rng) for _ in range(4000))])
    np.testing.assert_allclose(directions.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(directions.T @ directions / 4000, np.eye(3) / 3, atol=0.03)


def test_the_same_stream_gives_the_same_noise():
    a, b = tilt(9, 2.0, np.random.default_rng(1)), tilt(9, 2.0, np.random.default_rng(1))
    assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("where", "word"),
    [
        (place(longest=1.5), "length 1.5"),
        (place(samples=3), "too few"),
        (place(classes=10), "two classes"),
        (place(Shape(tensors=4)), "generalised linear"),
        (place(Shape(buffers=2)), "BatchNorm"),
    ],
)
def test_objective_perturbation_refuses_a_site_it_cannot_protect(where, word):
    assert Objective().tilt(place(), np.zeros(3, np.float32), 0.1) is not None
    with pytest.raises(ConfigError, match=word):
        Objective().tilt(where, np.zeros(3, np.float32), 0.1)


def test_output_perturbation_refuses_statistics_that_no_noise_covers():
    with pytest.raises(ConfigError, match="BatchNorm"):
        Output().tilt(place(Shape(buffers=1)), np.zeros(6, np.float32), 0.1)


def test_a_mechanism_tells_both_sensitivities_side_by_side():
    spent = Output(clip=10, sigma=0.8, delta=1e-3).spent(40, samples=224, mu=0.1)
    assert spent["eps_paper"] == pytest.approx(1.374, abs=5e-4)
    assert spent["eps_worst_case"] > 1000 * spent["eps_paper"]
    both = Objective(alpha=20).spent(40, samples=224, mu=0.1)
    assert both["eps_paper_range"] == pytest.approx(both["eps_paper"] * 41 / 40)


def test_a_refused_update_still_counts_as_spent():
    old = {"odd_updates": np.array(3), "local": np.zeros(2)}
    kept = keep_spent(old, {"odd_updates": np.array(4), "local": np.ones(2)})
    assert kept["odd_updates"] == 4
    assert np.array_equal(kept["local"], np.zeros(2))
    assert keep_spent({"c": np.zeros(1)}, {"c": np.ones(1)}) == {"c": np.zeros(1)}
