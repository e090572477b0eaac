"""No device outweighs the others: the other answers bound what an answer may do to a model, not its own claims.

    weight   up to `weight_cap` times the usual one, and never more than that of all the others, were they usual
    length   up to `norm_cap` times the usual one: of the update, and of the statistics in it
             up to `extra_cap` times the usual one: of each array beside it

A value within its bound stays as it is. Up to `FADES` times the bound it is clipped to the bound: an honest device that
was away for long, or has unusual data, still counts as much as any device may. Beyond that it fades: a value of c times
`FADES` times the bound becomes the c-th part of the bound. If the update itself is so long, its weight is divided by c
as well. Arrays beside the update fade from their bound on, which is wide. So no answer exceeds the bound, and a very
long one hardly counts.

The usual value is the median of this round's answers or the median of the last rounds' medians, whichever is larger.
Each device counts once per round, only merged answers count, and no value counts above its bound. So a device gains
nothing by more frequent or larger answers, as long as fewer than half of the answers lie. Of two answers, one may
weigh `weight_cap` times as much as the other, and one that claims more than that weighs no less than the other. A
single weight is not bounded, nor a length without another one in this round or before.

A gateway's answer is bounded like the answers of its devices, if they were all alike. A gateway that lies does as much
harm as that number of lying devices. The operator sets how many devices it may speak for (`guards.speaks_for`).

The medians are part of the run's state (`RunState.states["guards"]`): they survive a restart, and are the same in loop,
emulator and coordinator. Single numbers beside an update are counters: reported, not merged, not bounded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, sqrt

import numpy as np

from edgefl.base.vector import Array, State, Vector, norm
from edgefl.learn.contract import Update

NAME = "guards"  # of the state; no stage may be called so
ROUNDS = 16  # whose medians are remembered
FADES = 4.0  # times its bound; an answer beyond that is no longer plausible, and fades
WEIGHT, DELTA, STATISTICS, EXTRA = "weight", "delta", "statistics", "extra/"

Lengths = Mapping[str, float]  # by the name of the array


@dataclass(frozen=True, slots=True)
class Caps:
    """The bounds as multiples of the usual value; infinity: no bound."""

    weight: float = inf
    norm: float = inf
    extra: float = inf

    @property
    def off(self) -> bool:
        return self == Caps()

    def of(self, name: str) -> float:
        return self.extra if name.startswith(EXTRA) else self.norm


@dataclass(frozen=True, slots=True)
class Bounded:
    """The bounded answers, the next state, and by which factors answers were scaled down."""

    updates: Mapping[str, Update]
    late: Mapping[str, Update]
    state: State
    changed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by device: what, and by which factor


def bound(
    updates: Mapping[str, Update], late: Mapping[str, Update], state: State, *, trainable: int, caps: Caps
) -> Bounded:
    """Scale the answers of a round down to their bounds; return those within them unchanged.

    Late answers that are only shown to the stages have the same bounds, and do not change the medians.
    """
    if caps.off or not (updates or late):
        return Bounded(updates, late, state)
    fresh = dict(sorted(updates.items()))
    lengths = {device: _lengths(update.opened(), trainable) for device, update in (fresh | dict(late)).items()}
    limits, medians = _limits([lengths[device] for device in fresh], state, caps)
    factors = {device: _factors(lengths[device], limits) for device in lengths}
    faded = {device: update.weight * _fading(factors[device].get(DELTA, 1.0)) for device, update in fresh.items()}
    each = {device: weight / fresh[device].devices for device, weight in faded.items()}
    allowed = _weights(each, state, caps, sum(update.devices for update in fresh.values()))
    weights = {
        device: faded[device] if one == each[device] else one * fresh[device].devices for device, one in allowed.items()
    }
    changed = {device: dict(by_part) for device, by_part in factors.items() if by_part}
    for device, weight in weights.items():
        if weight < updates[device].weight:
            changed.setdefault(device, {})[WEIGHT] = weight / updates[device].weight
    if weights:
        medians[WEIGHT] = _remembered(state, WEIGHT, lower_median(allowed.values()))
    return Bounded(
        {device: _scaled(update, factors[device], weights[device], trainable) for device, update in updates.items()},
        {device: _scaled(update, factors[device], update.weight, trainable) for device, update in late.items()},
        medians,
        dict(sorted(changed.items())),
    )


def lower_median(numbers: Iterable[float]) -> float:
    """Return the median; of an even number the smaller middle one, so that half of the answers cannot raise it."""
    ordered = sorted(numbers)
    return ordered[(len(ordered) - 1) // 2]


def _weights(claimed: Mapping[str, float], state: State, caps: Caps, fleet: int) -> dict[str, float]:
    """Return the weight of each device, or of each one that a gateway speaks for, and their number."""
    if len(claimed) < 2 or caps.weight == inf:
        return dict(claimed)
    usual = max(lower_median(claimed.values()), _known(state, WEIGHT))
    faded = {device: weight * factor(weight, caps.weight * usual) for device, weight in claimed.items()}
    if len(claimed) == 2:  # a tiny weight must not make an honest one look large
        return {device: max(weight, min(claimed[device], usual)) for device, weight in faded.items()}
    return {device: min(weight, (fleet - 1) * usual) for device, weight in faded.items()}


def _limits(answers: Iterable[Lengths], state: State, caps: Caps) -> tuple[dict[str, float], State]:
    """Return the longest allowed length of each array, and the medians with those of this round appended."""
    by_name: dict[str, list[float]] = {}
    for lengths in answers:
        for name, length in lengths.items():
            by_name.setdefault(name, []).append(length)
    limits, medians = dict[str, float](), dict(state)
    for name, now in sorted(by_name.items()):
        known = _known(state, name)
        usual = max(known, lower_median(now) if len(now) > 1 else 0.0)
        limits[name] = caps.of(name) * usual if usual else inf
        medians[name] = _remembered(state, name, lower_median(min(length, limits[name]) for length in now))
    return limits, medians


def factor(size: float, limit: float, fades: float = FADES) -> float:
    """Return the factor for a value of this size: 1, clipped to the limit, or beyond `fades` limits faded."""
    if size <= limit:
        return 1.0
    clipped = limit / size
    return clipped * min(1.0, fades * clipped)


def _fading(factor: float) -> float:
    """The part of a factor that is beyond clipping: 1 up to `FADES` times the bound, then falling with the size."""
    return min(1.0, sqrt(FADES * factor))


def _factors(lengths: Lengths, limits: Lengths) -> dict[str, float]:
    factors = {
        name: factor(length, limits.get(name, inf), fades=1.0 if name.startswith(EXTRA) else FADES)
        for name, length in lengths.items()
    }
    return {name: by for name, by in factors.items() if by < 1}


def _known(state: State, name: str) -> float:
    medians = state.get(name)
    return 0.0 if medians is None else lower_median(medians.tolist())


def _remembered(state: State, name: str, median: float) -> Array:
    return np.append(state.get(name, np.zeros(0)), median)[-ROUNDS:]


def _lengths(update: Update, trainable: int) -> dict[str, float]:
    parts = {DELTA: update.delta[:trainable], STATISTICS: update.delta[trainable:]}
    parts |= {EXTRA + name: array.reshape(-1) for name, array in update.extra.items() if array.ndim}
    return {name: norm(part) for name, part in parts.items() if part.size}


def _scaled(update: Update, factors: Lengths, weight: float, trainable: int) -> Update:
    if weight != update.weight:
        update = update.weighing(weight)
    return update.through(partial(_within, factors, trainable)) if factors else update


def _within(factors: Lengths, trainable: int, delta: Vector, extra: State) -> tuple[Vector, State]:
    """The arrays of an answer, each multiplied by its factor."""
    if DELTA in factors or STATISTICS in factors:
        delta = delta.copy()
        delta[:trainable] *= delta.dtype.type(factors.get(DELTA, 1.0))
        delta[trainable:] *= delta.dtype.type(factors.get(STATISTICS, 1.0))
    scaled = {
        name: (array * factors[EXTRA + name]).astype(array.dtype)
        for name, array in extra.items()
        if EXTRA + name in factors
    }
    return delta, {**extra, **scaled}
