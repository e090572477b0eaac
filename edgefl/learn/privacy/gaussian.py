"""What Gaussian noise promises, exactly: no bound is rounded up on the way from noise to epsilon.

Noise of deviation `sigma` on a vector that one record can move by `reach` is known by one number, mu = reach / sigma:
how far apart the two answers are, in units of the noise. Several such answers together are as one with

    mu = sqrt(mu_1^2 + mu_2^2 + ...)                                          (Dong, Roth and Su, 2022)

also if each is computed from those before it. One with mu is (epsilon, delta)-private exactly if

    delta >= Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)    (Balle and Wang, 2018, theorem 8)

Phi being the normal distribution. With phi its density and M(x) = Phi(-x) / phi(x) the Mills ratio, the second term is
phi(a) M(a + mu) for a = epsilon/mu - mu/2, where no exponential can overflow.
"""

from collections.abc import Callable
from math import erfc, exp, log, pi, sqrt

from edgefl.base.errors import ConfigError

_FAR = 10.0  # where the continued fraction below needs no more terms than these to be exact
_TERMS = 60
_HALVINGS = 200  # of an interval: more than a float has bits, whatever its exponent


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta at which Gaussian noise of this mu is (epsilon, delta)-private."""
    _not_negative(mu=mu, epsilon=epsilon)
    if mu == 0:
        return 0.0
    a = epsilon / mu - mu / 2
    if a >= 0:
        return max(0.0, _density(a) * (_mills(a) - _mills(a + mu)))
    return 1 - _density(a) * (_mills(-a) + _mills(a + mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which Gaussian noise of this mu is (epsilon, delta)-private."""
    _not_negative(mu=mu)
    _check_delta(delta)
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * sqrt(2 * log(1 / delta))  # the moments bound, which is above it
    return _border(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, most)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu, so the least noise, that is (epsilon, delta)-private: `gaussian_epsilon` backwards."""
    if not epsilon > 0:
        raise ConfigError(f"privacy: epsilon = {epsilon:g} must be above 0")
    _check_delta(delta)
    most = 1.0
    while gaussian_delta(most, epsilon) <= delta:
        most *= 2
    return _border(lambda mu: gaussian_delta(mu, epsilon) > delta, most)[0]


def _border(holds: Callable[[float], bool], high: float) -> tuple[float, float]:
    """Return the last number for which something does not hold yet, and the first for which it does."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def _density(x: float) -> float:
    return exp(-x * x / 2) / sqrt(2 * pi)


def _mills(x: float) -> float:
    """Return Phi(-x) / phi(x), for x >= 0."""
    if x < _FAR:
        return erfc(x / sqrt(2)) / 2 / _density(x)
    ratio = x
    for term in range(_TERMS, 0, -1):
        ratio = x + term / ratio
    return 1 / ratio


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ConfigError(f"privacy: {name} = {value:g} cannot be negative")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"privacy: delta = {delta:g} must lie between 0 and 1")
