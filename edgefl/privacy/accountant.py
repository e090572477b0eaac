"""What the private versions of Upcycled-FL cost in privacy (Yin et al., 2024, theorems 5.2 and 5.3).

Only updates that touch data count, and every one a device really computed counts, even if its message was lost.
FedProx and FedAvg with the same mechanism are accounted by the same functions: there every update touches data.

Two sensitivities stand side by side. `paper` is the theorem's: a clipped model is treated as a mean of n terms of
length at most clip, so one record moves it by clip / n. Clipping a trained model does not give that bound;
`worst_case` is what it does give: replacing one record may move the model by 2 clip.
"""

from math import exp, log, sqrt
from typing import Literal, TypeAlias

from edgefl.errors import ConfigError

Sensitivity: TypeAlias = Literal["paper", "worst_case"]


def upcycled_epsilon(
    odd_updates: int, clip: float, sigma: float, samples: int, delta: float, *, sensitivity: Sensitivity = "paper"
) -> float:
    """The epsilon of output perturbation: A + 2 sqrt(A ln(1/delta)), the minimum of the moments bound."""
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
    """The noise that spends exactly `epsilon` over so many odd updates: `upcycled_epsilon` the other way round."""
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
    feature_norm: float = 1.0,
    terms: Literal["made", "paper"] = "made",
) -> float:
    """The epsilon of objective perturbation, delta being 0; refuses what the theorem does not cover.

    The loss must be a function of one scalar margin with |loss'| <= u1 and |loss''| <= u2, features no longer than
    1, and the odd problems solved exactly. Binary logistic loss of one margin has u1 = 1, u2 = 1/4; written with two
    logits the margin's features are sqrt(2) longer, which u1 = sqrt(2), u2 = 1/2 make good.
    The paper's sum has one term more than there are odd updates: `terms="paper"` gives that upper bound.
    """
    _positive(alpha=alpha, u1=u1, u2=u2, samples=samples, mu=mu)
    if classes > 2:
        raise ConfigError(
            f"privacy: objective perturbation needs a scalar margin, so two classes, not {classes}; use 'output'"
        )
    if feature_norm > 1 + 1e-6:  # float32 rounding of a normalised row is no reason to refuse
        raise ConfigError(f"privacy: a feature vector has length {feature_norm:.4g}; scale the features to at most 1")
    if samples * mu < 2 * u2:
        raise ConfigError(
            f"privacy: {samples} samples with mu = {mu:g} are too few for objective perturbation; "
            f"samples * mu must be at least 2 u2 = {2 * u2:g}"
        )
    odd = _count(odd_updates) + (terms == "paper")
    return odd * (2 * alpha * u1 / samples + 2.8 * u2 / (samples * mu))


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
