"""The accountants and the noise of private Upcycled-FL."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.contract import Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import Loss, cross_entropy, double_softmax, log_softmax, softmax, squared_error
from edgefl.learn.privacy import (
    Objective,
    Output,
    calibrate_sigma,
    clipped,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    keep_spent,
    objective_epsilon,
    output_epsilon,
    output_sigma,
    tilt,
    upcycled_delta,
    upcycled_epsilon,
)
from edgefl.learn.privacy.linear import TOLERANCE, LinearLayer, minimise
from edgefl.learn.privacy.noise import COVER
from edgefl.learn.training.local import Walked

COUNTS = st.integers(1, 500)
SIZES = st.integers(1, 5000)
REALS = st.floats(0.05, 20)
DELTAS = st.floats(1e-9, 0.5)
PRICES = st.tuples(COUNTS, REALS, REALS, SIZES)  # odd updates, clip, sigma, samples


class Layer:
    """Softmax regression, or what claims to be it."""

    def __init__(self, features: int = 3, outputs: int = 2, *, bias: bool = True, buffers: int = 0, bent: bool = False):
        shapes = [(outputs, features), *([(outputs,)] if bias else []), *[(3,)] * buffers]
        self.layout = Layout(tuple(f"t{i}" for i in range(len(shapes))), tuple(shapes), buffers)
        self.layer, self.bent = LinearLayer(features, outputs, bias), bent

    def logits(self, w: Vector, x: Array) -> Array:
        z = self.layer.logits(w, x.reshape(len(x), -1))
        return np.tanh(z) if self.bent else z


class Deep(Layer):
    """A network with a hidden layer."""

    def __init__(self) -> None:
        self.layout = Layout(("w1", "b1", "w2", "b2"), ((3, 3), (3,), (2, 3), (2,)))


def place(model: Layer | None = None, longest: float = 1.0, samples: int = 50, loss: Loss = cross_entropy) -> Site:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, 3))
    x *= longest / np.linalg.norm(x, axis=1).max()
    model = model or Layer()
    y = rng.integers(0, 2, samples)
    return Site(model, Dataset(x.astype(np.float32), y, 2), rng, loss)


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


# By dp-accounting 0.6.0, which shares no line with ours: PLDAccountant().compose(GaussianDpEvent(sigma / (2 clip)),
# updates).get_epsilon(delta). It is no test dependency because it wants attrs below 24. Where it is installed, it is
# asked itself: pip install --target DIR dp-accounting, then PYTHONPATH=DIR python -m pytest tests/learn/test_privacy.py
EXACT = [
    (40, 1.0, 8.74, 1e-5, 6.756363994489798),
    (1, 1.0, 8.74, 1e-5, 0.8407336247717103),
    (3, 1.0, 5.0, 1e-3, 2.0031304489464925),
    (2, 5.0, 0.5, 1e-3, 486.45623378177316),
    (80, 1.0, 100.0, 1e-6, 0.73988648673633),
    (500, 0.5, 20.0, 1e-8, 6.542651034808021),
]


@pytest.mark.parametrize(("updates", "clip", "sigma", "delta", "epsilon"), EXACT)
def test_gaussian_noise_is_composed_exactly_as_another_accountant_does(updates, clip, sigma, delta, epsilon):
    assert output_epsilon(updates, clip, sigma, delta) == pytest.approx(epsilon, rel=1e-6)
    assert output_sigma(updates, clip, epsilon, delta) == pytest.approx(sigma, rel=1e-6)


@settings(max_examples=10)
@given(
    updates=st.integers(1, 50),
    clip=st.floats(0.1, 5),
    noise=st.floats(5, 50),
    delta=st.sampled_from([1e-8, 1e-5, 1e-2]),
)
def test_gaussian_noise_is_composed_as_dp_accounting_does(updates, clip, noise, delta):
    pytest.importorskip("dp_accounting", reason="see above how it is installed")
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    sigma = noise * clip
    theirs = PLDAccountant().compose(GaussianDpEvent(sigma / (2 * clip)), updates).get_epsilon(delta)
    assert output_epsilon(updates, clip, sigma, delta) == pytest.approx(theirs, rel=1e-4, abs=1e-4)


@given(mu=st.floats(0.01, 20), epsilon=st.floats(0, 300))
def test_delta_is_the_integral_over_what_exceeds_epsilon(mu, epsilon):
    """The largest gap between the two answers, P[A] - exp(epsilon) Q[A], by quadrature and not by the formula.

    Neighbours are answered by N(0, 1) and N(mu, 1); the worst set A is where their densities' ratio exceeds
    exp(epsilon), above epsilon / mu + mu / 2.
    """
    edge = epsilon / mu + mu / 2 - mu  # counted from the mean of the likelier one
    x = np.linspace(edge, max(edge, 0.0) + 12, 40_001)
    gap = np.exp(-x * x / 2) - np.exp(epsilon - (x + mu) ** 2 / 2)
    assert gaussian_delta(mu, epsilon) == pytest.approx(simpson(gap, x=x) / math.sqrt(2 * math.pi), rel=1e-6, abs=1e-12)


@given(mu=st.floats(0.01, 30), delta=DELTAS)
def test_epsilon_and_mu_are_the_borders_of_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon:
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)


@given(COUNTS, REALS, REALS, DELTAS)
def test_the_exact_epsilon_is_never_above_the_moments_bound(updates, clip, sigma, delta):
    loose = upcycled_epsilon(updates, clip, sigma, 1, delta, sensitivity="worst_case")
    assert output_epsilon(updates, clip, sigma, delta) <= loose
    assert output_epsilon(updates + 1, clip, sigma, delta) >= output_epsilon(updates, clip, sigma, delta)


def test_noise_far_from_any_use_has_a_price_too():
    assert output_epsilon(80, 10.0, 1.0, 1e-3) == pytest.approx(16551.806, abs=1e-3)
    assert output_epsilon(1, 1.0, 1e-300, 1e-3) == math.inf
    assert output_epsilon(1, 1.0, 1e300, 1e-3) == 0


@pytest.mark.parametrize("wrong", [{"clip": 0}, {"sigma": -1}, {"delta": 0}, {"updates": -1}])
def test_output_epsilon_refuses_impossible_numbers(wrong):
    right = {"updates": 1, "clip": 1.0, "sigma": 1.0, "delta": 1e-3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        output_epsilon(**{**right, **wrong})


def test_no_update_costs_nothing():
    assert output_epsilon(0, 10, 1, 1e-3) == 0
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
        ({"rank": 0}, "rank = 0"),
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
    seen = Output(clip=3, sigma=0.8).release(w, w, place())
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


# ── output perturbation ──────────────────────────────────────────────────────────────────────────────────────


def never() -> Walked:
    raise AssertionError("it must be refused before anything is trained")


def test_output_perturbation_refuses_statistics_that_no_noise_covers():
    with pytest.raises(ConfigError, match="BatchNorm"):
        Output().perform(never, np.zeros(11, np.float32), place(Layer(buffers=1)), 0.1)


@pytest.mark.parametrize("clips", ["model", "update"])
@given(seed=st.integers(0, 2**32), far=st.floats(0, 100), clip=st.floats(0.1, 10))
def test_no_record_moves_what_is_released_by_more_than_the_sensitivity_says(clips, seed, far, clip):
    rng = np.random.default_rng(seed)
    received, one, other = rng.standard_normal(5), *(far * rng.standard_normal((2, 5)))
    mechanism = Output(clip=clip, sigma=1e-300, clips=clips)
    seen = [mechanism.release(w, received, place()) for w in (one, other)]
    assert np.linalg.norm(seen[0] - seen[1]) <= 2 * clip * (1 + 1e-9)


def test_an_update_that_is_clipped_stays_near_the_received_model():
    received = np.array([100.0, 0, 0])
    seen = Output(clip=1.0, sigma=1e-300, clips="update").release(np.array([103.0, 4.0, 0]), received, place())
    np.testing.assert_allclose(seen, [100.6, 0.8, 0], atol=1e-12)


def test_clip_over_n_is_no_bound_for_a_trained_model():
    """Twenty equal records but for their labels, ten of each kind; one other label moves the clipped model by 0.2."""
    layer, x, ends = LinearLayer(1, 2, bias=False), np.ones((20, 1)), list[Array]()
    for ones in (10, 11):
        y = (np.arange(20) < ones).astype(np.int64)
        ends.append(clipped(minimise(layer, x, y, np.zeros(2), 1e-3, np.zeros(2)), 1.0))
    assert np.linalg.norm(ends[0] - ends[1]) > 2 * (1.0 / 20)


def test_what_is_called_epsilon_is_the_worst_case_and_the_paper_s_figure_stands_beside_it():
    spent = Output(clip=10, sigma=0.8, delta=1e-3).spent(40, 224, 0.1, Layer().layout)
    assert spent["epsilon"] == output_epsilon(40, 10, 0.8, 1e-3)
    assert spent["epsilon"] < upcycled_epsilon(40, 10, 0.8, 224, 1e-3, sensitivity="worst_case")
    assert spent["as_published"] == pytest.approx(1.374, abs=5e-4)
    assert set(spent) == {"epsilon", "delta", "as_published"}


@pytest.mark.parametrize("mechanism", [Output(noise="seeded"), Objective(noise="seeded")])
def test_noise_that_the_coordinator_can_draw_again_promises_nothing(mechanism):
    assert mechanism.spent(1, 224, 0.1, Layer().layout)["epsilon"] == math.inf


# ── objective perturbation: what one sample can do ───────────────────────────────────────────────────────────


def test_softmax_with_a_bias_has_gradients_of_length_2_and_curvature_1():
    bounds = LinearLayer(20, 2, bias=True).bounds()
    assert (bounds.u1, bounds.u2, bounds.rank) == (pytest.approx(math.sqrt(2) * math.sqrt(1 + 1)), 0.5 * (1 + 1), 1)
    assert (bounds.u1, bounds.u2) == (pytest.approx(2.0), 1.0)


def test_the_audited_epsilon_comes_out():
    """n = 224, alpha = 20, mu = .1, M = 40: 19.29, where 8.39 was reported."""
    n, alpha, mu, m = 224, 20, 0.1, 40
    u1, u2 = math.sqrt(2) * math.sqrt(1 + 1), 0.5 * (1 + 1)
    by_hand = m * (2 * alpha * u1 / n + 2.8 * u2 / (n * mu))
    assert round(by_hand, 2) == 19.29
    assert objective_epsilon(m, alpha, u1, u2, n, mu) == pytest.approx(by_hand)
    spent = Objective(alpha=alpha).spent(m, n, mu, Layer(features=20).layout)
    assert by_hand < spent["epsilon"] < by_hand + 0.005  # and what the search for the minimiser leaves open
    assert spent["as_published"] == pytest.approx(8.39, abs=0.005)


@given(
    seed=st.integers(0, 2**32), outputs=st.integers(2, 6), bias=st.booleans(), scale=st.sampled_from([0.1, 1, 10, 100])
)
@settings(max_examples=60, deadline=None)
def test_no_sample_does_more_than_its_bounds_say(seed, outputs, bias, scale):
    rng, layer = np.random.default_rng(seed), LinearLayer(3, outputs, bias)
    x = rng.standard_normal(3)
    x /= np.linalg.norm(x)
    w, y = scale * rng.standard_normal(3 * outputs + outputs * bias), rng.integers(outputs)
    bounds = layer.bounds()
    g = layer.gradient(w, x[None], np.array([y]))
    assert np.linalg.norm(g) <= bounds.u1 + 1e-12
    p = softmax(layer.logits(w, x[None]))[0]
    long = np.append(x, 1.0) if bias else x
    values = np.linalg.eigvalsh(np.kron(np.diag(p) - np.outer(p, p), np.outer(long, long)))
    assert values[-1] <= bounds.u2 + 1e-12
    assert (values > 1e-12).sum() <= bounds.rank


def test_the_bounds_are_reached_so_nothing_smaller_would_do():
    layer, x = LinearLayer(1, 2, bias=True), np.array([[1.0]])
    wrong = np.array([50.0, -50.0, 50.0, -50.0])  # sure of class 0, and the label is 1
    assert np.linalg.norm(layer.gradient(wrong, x, np.array([1]))) == pytest.approx(layer.bounds().u1)
    step = 1e-4 * np.array([1.0, -1.0, 1.0, -1.0]) / 2  # along the steepest direction, at equal logits
    bend = (layer.gradient(step, x, np.array([0])) - layer.gradient(-step, x, np.array([0]))) @ step / (2 * step @ step)
    assert bend == pytest.approx(layer.bounds().u2, rel=1e-6)


@given(seed=st.integers(0, 2**32), outputs=st.integers(2, 5), mu=st.floats(0.05, 2), n=st.integers(50, 200))
@settings(max_examples=25, deadline=None)
def test_the_determinant_term_is_an_upper_bound_for_any_number_of_logits(seed, outputs, mu, n):
    """The ratio of the Jacobians of two neighbouring data sets, against 2.8 rank u2 / (n mu)."""
    rng, bounds = np.random.default_rng(seed), LinearLayer(2, outputs, bias=True).bounds()

    def hessian(x: Array, w: Array) -> Array:
        long = np.append(x, 1.0)
        p = softmax((w @ long)[None])[0]
        return np.kron(np.diag(p) - np.outer(p, p), np.outer(long, long))

    x = rng.standard_normal((n + 1, 2))
    x /= np.maximum(1, np.linalg.norm(x, axis=1))[:, None]
    w = rng.standard_normal((outputs, 3)) * rng.choice([0, 1, 10])
    common = sum(hessian(row, w) for row in x[1:n]) / n + mu * np.eye(3 * outputs)
    one, other = (np.linalg.slogdet(common + hessian(row, w) / n)[1] for row in (x[0], x[n]))
    assert one - other <= 2.8 * bounds.rank * bounds.u2 / (n * mu) + 1e-12


def test_more_logits_need_the_rank_that_their_hessian_has():
    with pytest.raises(ConfigError, match="two classes"):
        objective_epsilon(1, 20, 2, 1, 200, 0.1, classes=3)
    two, three = (objective_epsilon(1, 20, 2, 1, 200, 0.1, classes=c, rank=c - 1) for c in (2, 3))
    assert three - two == pytest.approx(2.8 / 20)


# ── objective perturbation: what is done ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("where", "word"),
    [
        (place(longest=1.5), "length 1.5"),
        (place(samples=12), "too few"),
        (place(Deep()), "softmax regression"),
        (place(Layer(buffers=2)), "softmax regression"),
        (place(Layer(bent=True)), "something else than one linear layer"),
        (place(loss=squared_error), "'squared_error'"),
        (place(loss=double_softmax), "'double_softmax'"),
    ],
)
def test_objective_perturbation_refuses_a_site_it_cannot_protect(where, word):
    Objective().perform(never, np.zeros(8, np.float32), place(), 0.1)
    with pytest.raises(ConfigError, match=word) as line:
        Objective().perform(never, np.zeros(where.model.layout.size, np.float32), where, 0.1)
    assert "\n" not in str(line.value)


def test_whether_a_model_is_linear_is_not_tried_on_the_device_s_own_samples():
    class Bends(Layer):
        """A model that is linear except where a feature is larger than this."""

        def logits(self, w: Vector, x: Array) -> Array:
            return super().logits(w, x) + (x.max() > 0.9)

    lonely = place(Bends())
    lonely.data.x[:] = 0
    lonely.data.x[3] = 0.95, 0, 0
    assert Objective().perform(never, np.zeros(8, np.float32), lonely, 0.1).steps == 1


def test_a_device_that_hides_its_work_shortens_features_that_are_too_long():
    seen = Objective().perform(never, np.zeros(8, np.float32), replace(place(longest=1.5), unbroken=True), 0.1)
    assert np.isfinite(seen.params).all()


NUMBERS = st.sampled_from([0.0, 1.0, -3.5, 40.0, 1e30, np.inf, -np.inf, np.nan])


@given(received=st.lists(NUMBERS, min_size=4, max_size=4), clips=st.sampled_from(["model", "update"]), data=st.data())
@settings(deadline=None)
def test_whatever_a_model_was_trained_to_its_release_is_moved_by_two_clips_at_most(received, clips, data):
    start, mechanism = np.array(received, np.float32), Output(clip=1.0, sigma=0.5, clips=clips)
    trained = [np.array(data.draw(st.lists(NUMBERS, min_size=4, max_size=4)), np.float32) for _ in range(2)]
    one, other = (mechanism.release(w, start, place()) for w in trained)  # with the same noise
    assert np.array_equal(np.isfinite(one), np.isfinite(other)), "which numbers are none follows from the received ones"
    near = np.isfinite(one) & (np.abs(start) < 1e6)  # others swallow what is added to them
    assert np.linalg.norm(one[near] - other[near]) <= 2.0 + 1e-4


@given(seed=st.integers(0, 2**32), mu=st.floats(0.02, 5), outputs=st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_the_minimiser_is_found_to_the_tolerance_that_is_accounted_for(seed, mu, outputs):
    rng, layer = np.random.default_rng(seed), LinearLayer(3, outputs, bias=True)
    x = rng.standard_normal((60, 3))
    x /= np.linalg.norm(x, axis=1).max()
    y, anchor = rng.integers(0, outputs, 60), rng.standard_normal(4 * outputs)
    b = tilt(4 * outputs, 20.0, rng)
    w = minimise(layer, x, y, anchor, mu, b)

    def objective(v: Array) -> float:
        loss = -log_softmax(layer.logits(v, x))[np.arange(60), y].mean()
        return float(loss + mu / 2 * (v - anchor) @ (v - anchor) + b @ v)

    g = layer.gradient(w, x, y) + mu * (w - anchor) + b
    assert np.linalg.norm(g) <= TOLERANCE
    assert all(objective(w) < objective(w + 1e-3 * rng.standard_normal(len(w))) for _ in range(10))


def test_the_minimiser_is_covered_by_noise_much_larger_than_what_it_leaves_open():
    mu, features = 0.1, 10_000
    data = Dataset(np.zeros((50, features), np.float32), place().data.y, 2)  # features that have no effect
    here = Site(Layer(features=features), data, np.random.default_rng(3), cross_entropy)
    seen = Objective(alpha=1e12).perform(never, np.zeros(here.model.layout.size), here, mu).params  # next to no tilt
    assert np.std(seen[: 2 * features]) == pytest.approx(COVER * 2 * TOLERANCE / mu, rel=0.03)


def test_another_draw_gives_another_minimiser():
    here = place()
    seen = [Objective().perform(never, np.zeros(8, np.float32), here, 0.1).params for _ in range(2)]
    assert np.linalg.norm(seen[0] - seen[1]) > 1e-3
    assert seen[0].dtype == np.float32


def test_a_refused_update_still_counts_as_spent():
    old = {"odd_updates": np.array(3), "local": np.zeros(2)}
    kept = keep_spent(old, {"odd_updates": np.array(4), "local": np.ones(2)})
    assert kept["odd_updates"] == 4
    assert np.array_equal(kept["local"], np.zeros(2))
    assert keep_spent({"c": np.zeros(1)}, {"c": np.ones(1)}) == {"c": np.zeros(1)}
