"""How far a device is believed that says something of itself: to lie must not be a way to be chosen.

The claims of other devices bound each claim. A number of samples is cut at a multiple of the median; a loss is cut at
the value that a given share of the fleet does not exceed. A device that answered and claims nothing counts as the
median, so that silence brings no advantage.
"""

from collections.abc import Sequence
from math import floor

import numpy as np

from edgefl.base import seeds
from edgefl.learn.robustness import lower_median
from edgefl.learn.selection.base import Candidate

MOST = 5.0  # times the median number of samples


def samples(candidates: Sequence[Candidate]) -> dict[str, float]:
    """How many samples each device counts for, one at least."""
    claimed = {one.id: max(1.0, float(one.samples)) for one in candidates}
    most = MOST * lower_median(claimed.values()) if claimed else 0.0
    return {id: min(count, most) for id, count in claimed.items()}


def losses(candidates: Sequence[Candidate], clip: float) -> dict[str, float]:
    """The loss of each device that has answered, cut at the one that the share `clip` of them do not exceed."""
    known = sorted(one.loss for one in candidates if one.loss is not None)
    if not known:
        return {one.id: 0.0 for one in candidates if one.counted}
    most, usual = known[floor(clip * (len(known) - 1))], lower_median(known)
    heard = (one for one in candidates if one.counted or one.loss is not None)
    return {one.id: usual if one.loss is None else min(one.loss, most) for one in heard}


def by_weight(weights: dict[str, float], seed: int, draw: int) -> list[str]:
    """The devices one after another, each drawn from those that are left with a chance in proportion to its weight."""
    names = sorted(weights)
    lots = seeds.stream(seed, draw, "selection").exponential(size=len(names))
    keys = {name: lot / weights[name] for name, lot in zip(names, np.asarray(lots).tolist(), strict=True)}
    return sorted(names, key=lambda name: keys[name])
