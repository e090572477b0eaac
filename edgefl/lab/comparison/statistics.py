"""What several seeds say together: mean, spread, confidence interval, and one algorithm tested against another.

Runs of the same seed share data and cohorts, so two algorithms are compared by the differences of their paired runs:
Student's t-test, two-sided. It is exact where differences are normal, and with three to ten seeds no rank test could
see anything (Wilcoxon's smallest p with three pairs is 0.25). Several algorithms against one are corrected after Holm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, lgamma, log, nan, sqrt
from statistics import fmean, stdev

CONFIDENCE = 0.95
DEPTH = 200  # of the continued fraction


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds, and how sure it is; one seed alone has neither spread nor interval (NaN)."""

    seeds: int
    mean: float
    deviation: float  # of the sample: n - 1 in the denominator
    low: float  # ends of the confidence interval of the mean
    high: float


@dataclass(frozen=True, slots=True)
class Paired:
    """One algorithm against the baseline, seed by seed."""

    difference: Spread  # of the algorithm less the baseline
    p: float  # that chance alone makes a difference so large; NaN with fewer than two pairs
    corrected: float = nan  # the same after Holm, where several are compared with one baseline


def spread(values: Sequence[float], confidence: float = CONFIDENCE) -> Spread:
    """Mean, deviation and Student's interval of these."""
    mean, n = fmean(values) if values else nan, len(values)
    if n < 2:
        return Spread(n, mean, nan, nan, nan)
    deviation = stdev(values)
    half = quantile((1 + confidence) / 2, n - 1) * deviation / sqrt(n)
    return Spread(n, mean, deviation, mean - half, mean + half)


def paired(values: Mapping[int, float], baseline: Mapping[int, float], confidence: float = CONFIDENCE) -> Paired | None:
    """The paired t-test over the seeds that both have; None if they have none in common."""
    differences = [values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())]
    if not differences:
        return None
    gap = spread(differences, confidence)
    if gap.seeds < 2:
        return Paired(gap, nan)
    if gap.deviation == 0:
        return Paired(gap, 1.0 if gap.mean == 0 else 0.0)
    return Paired(gap, two_sided(gap.mean / (gap.deviation / sqrt(gap.seeds)), gap.seeds - 1))


def holm(ps: Sequence[float]) -> list[float]:
    """Correct these p-values for their number after Holm; NaN are left out of the count."""
    order = sorted((i for i, p in enumerate(ps) if isfinite(p)), key=lambda i: ps[i])
    corrected, highest = [nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[i]))
        corrected[i] = highest
    return corrected


def two_sided(t: float, freedom: int) -> float:
    """The chance of a value of Student's t that is at least so far from zero."""
    return _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def quantile(share: float, freedom: int) -> float:
    """Below which value this share (a half or more) of Student's t lies: by bisection, to the last bits."""
    if share >= 1:
        return inf
    low, high = 0.0, 1.0
    while 1 - two_sided(high, freedom) / 2 < share:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if 1 - two_sided(middle, freedom) / 2 < share else (low, middle)
    return high


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - _beta_share(1 - x, b, a)
    fraction = 1.0
    for i in range(DEPTH, 0, -1):  # from its end: the depth is far more than any number of seeds needs
        m = i // 2
        if i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + term / fraction
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x)) / a / fraction
