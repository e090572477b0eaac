"""What the private versions of Upcycled-FL and FedProx cost in privacy (after Yin et al., 2024, theorems 5.2 and 5.3).

Neighbouring data sets of a device have the same size and differ in one record. Only updates that touch data count, and
every one a device really computed counts, even if its message was lost.

What is called epsilon is `output_epsilon`. Replacing one record may move a clipped vector from one end of the ball to
the other, by 2 clip, however many samples there are. The Gaussian noise of all updates is composed exactly.

`upcycled_epsilon`, `upcycled_delta` and `calibrate_sigma` are the formulas of the paper, kept to compare with published
figures and called "as published" wherever they are shown. With the paper's sensitivity a clipped model is treated as a
mean of n terms of length at most clip, so that one record moves it by clip / n. Training makes no such mean, so that
figure bounds nothing. `sensitivity="worst_case"` puts 2 clip into the same formula: an upper bound, but a loose one.
"""

from math import exp, log, sqrt
from typing import Literal, TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.learn.privacy.gaussian import gaussian_epsilon, gaussian_mu

Sensitivity: TypeAlias = Literal["paper", "worst_case"]


def output_epsilon(updates: int, clip: float, sigma: float, delta: float) -> float:
    """Return the exact epsilon, at this delta, of a number of clipped vectors with Gaussian noise on each number."""
    _positive(clip=clip, sigma=sigma)
    return gaussian_epsilon(2 * clip * sqrt(_count(updates)) / sigma, delta)


def output_sigma(updates: int, clip: float, epsilon: float, delta: float) -> float:
    """Return the least noise with which `updates` spend no more than `epsilon`: the inverse of `output_epsilon`."""
    _positive(clip=clip, epsilon=epsilon)
    return 2 * clip * sqrt(_count(updates)) / gaussian_mu(epsilon, delta)


def upcycled_epsilon(
    odd_updates: int, clip: float, sigma: float, samples: int, delta: float, *, sensitivity: Sensitivity = "paper"
) -> float:
    """The epsilon of output perturbation as published: A + 2 sqrt(A ln(1/delta)), the minimum of the moments bound.

    An upper bound only with `sensitivity="worst_case"`, where `output_epsilon` is the exact figure.
    """
    a = _leak(odd_updates, clip, sigma, samples, sensitivity)
    return a + 2 * sqrt(a * _log_inverse(delta))


def upcycled_delta(
    odd_updates: int, clip: float, sigma: float, samples: int, epsilon: float, *, sensitivity: Sensitivity = "paper"
) -> float:
    """The delta that belongs to an epsilon; 1, which promises nothing, where epsilon is below the theorem's range."""
    a = _leak(odd_updates, clip, sigma, samples, sensitivity)
    if a == 0:
        return 0.0
    return exp(-a * (epsilon / (2 * a) - 0.5) ** 2) if epsilon >= a else 1.0


def calibrate_sigma(
    odd_updates: int, clip: float, epsilon: float, samples: int, delta: float, *, sensitivity: Sensitivity = "paper"
) -> float:
    """Return the noise that spends exactly `epsilon` over the odd updates: the inverse of `upcycled_epsilon`."""
    _positive(clip=clip, epsilon=epsilon, samples=samples)
    odd = _count(odd_updates)
    wide = _log_inverse(delta)
    root = epsilon / (sqrt(wide + epsilon) + sqrt(wide))  # sqrt(A), written without cancellation
    return _reach(clip, samples, sensitivity) * sqrt(odd / 2) / root


def objective_epsilon(  # noqa: PLR0917 - the six symbols of the theorem, in its order
    odd_updates: int,
    alpha: float,
    u1: float,
    u2: float,
    samples: int,
    mu: float,
    *,
    classes: int = 2,
    rank: int = 1,
    terms: Literal["made", "paper"] = "made",
) -> float:
    """The epsilon of objective perturbation, delta being 0; refuses what the theorem does not cover.

    `u1` bounds the length of one sample's gradient, `u2` the largest eigenvalue of its Hessian and `rank` the rank;
    features are no longer than 1 and the problems solved exactly. One margin without a bias has u1 = 1, u2 = 1/4 under
    the logistic loss; `edgefl.learn.privacy.linear` has the bounds of softmax regression.

    Why it is an upper bound, also for a rank above one: replacing a record moves the tilt that belongs to a given
    minimiser by at most 2 u1 / n, and so its density by exp(2 alpha u1 / n). It also replaces one sample's share of
    the Hessian. With A for all the rest, the ratio of the Jacobians is det(A + a/n) / det(A + a'/n) <= det(A + a/n) /
    det(A) <= (1 + u2 / (n mu))^rank <= exp(rank u2 / (n mu)). The theorem's 2.8 is more than that. The paper's sum has
    one term more than there are odd updates: `terms="paper"` gives that upper bound.
    """
    _positive(alpha=alpha, u1=u1, u2=u2, samples=samples, mu=mu, rank=rank)
    if classes > rank + 1:
        raise ConfigError(
            f"privacy: the Hessian of {classes} logits has rank {classes - 1}, and rank = {rank} is only enough for"
            f" {'two' if rank == 1 else rank + 1} classes; give rank = {classes - 1}, or use 'output'"
        )
    if samples * mu < 2 * u2:
        raise ConfigError(
            f"privacy: {samples} samples with mu = {mu:g} are too few for objective perturbation; "
            f"samples * mu must be at least 2 u2 = {2 * u2:g}"
        )
    odd = _count(odd_updates) + (terms == "paper")
    return odd * (2 * alpha * u1 / samples + 2.8 * rank * u2 / (samples * mu))


def _leak(odd_updates: int, clip: float, sigma: float, samples: int, sensitivity: Sensitivity) -> float:
    """A = M reach^2 / (2 sigma^2): what all odd updates together give away."""
    _positive(clip=clip, sigma=sigma, samples=samples)
    return _count(odd_updates) * (_reach(clip, samples, sensitivity) / sigma) ** 2 / 2


def _reach(clip: float, samples: int, sensitivity: Sensitivity) -> float:
    if sensitivity not in {"paper", "worst_case"}:
        raise ConfigError(f"privacy: sensitivity = {sensitivity!r} is unknown; use 'paper' or 'worst_case'")
    return clip / samples if sensitivity == "paper" else 2 * clip


def _count(odd_updates: int) -> int:
    if odd_updates < 0:
        raise ConfigError(f"privacy: odd_updates = {odd_updates} cannot be negative")
    return odd_updates


def _log_inverse(delta: float) -> float:
    if not 0 < delta < 1:
        raise ConfigError(f"privacy: delta = {delta:g} must lie between 0 and 1")
    return -log(delta)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"privacy: {name} = {value:g} must be above 0")
