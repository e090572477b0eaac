"""What an answer weighs that began from an older model than the one it is merged into (FedBuff, Nguyen et al., 2022).

Its weight is divided by sqrt(1 + s), where s is how many merges it is behind. The step is then the weighted sum,
divided by the sum of the original weights. So a buffer of only old answers makes a shorter step than one of fresh
answers.
"""

from collections.abc import Mapping
from math import sqrt

from edgefl.learn.contract import Update


def freshness(staleness: int) -> float:
    """The share of its weight that an answer keeps."""
    return 1 / sqrt(1 + staleness)


def aged(updates: Mapping[str, Update], ages: Mapping[str, int]) -> tuple[dict[str, Update], float]:
    """The updates with what their ages leave of their weights, and which share of all weight that is."""
    if not ages:
        return dict(updates), 1.0
    left = {device: one.weight * freshness(ages.get(device, 0)) for device, one in sorted(updates.items())}
    whole = sum(one.weight for _, one in sorted(updates.items()))
    old = {device: one.weighing(left[device]) for device, one in updates.items() if ages.get(device)}
    return {**updates, **old}, sum(left.values()) / whole if old else 1.0
