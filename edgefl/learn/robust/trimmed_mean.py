"""The mean of each number of the update, without its largest and smallest ones (Yin et al., 2018)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector
from edgefl.learn.contract import STRICT, Draft, Site
from edgefl.learn.robust.votes import (
    VOTE,
    Share,
    blocks,
    by_median,
    counted,
    liars,
    nearest,
    outvoted,
    too_few,
    trained,
)


def trimmed_mean(deltas: Sequence[Vector], trim: int) -> Vector:
    """The mean of each number without the `trim` smallest and the `trim` largest of it."""
    if len(deltas) <= 2 * trim:
        raise ValueError(f"nothing is left of {len(deltas)} updates without {trim} at each end")
    middle = np.empty_like(deltas[0])
    for columns, block in blocks(deltas):
        middle[columns] = np.sort(block, axis=0)[trim : len(deltas) - trim].mean(axis=0)
    return middle


@dataclass(frozen=True, config=STRICT, kw_only=True)
class TrimmedMean:
    """The step is the mean without the share of each number at either end; believed are the others' nearest.

    A share f of n answers, rounded up, is taken off at each end. Where nothing would be left the median stands in.
    """

    name: Literal["trimmed_mean"] = "trimmed_mean"
    share: Share = 0.3

    traits = VOTE

    def needs(self, answers: int) -> int:
        return 2 * liars(self.share, answers) + 1

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, answers = site.model.layout.trainable, len(draft.updates)
        if too_few(draft, self.name, self.needs(answers), instead="the median stands in"):
            return by_median(draft, k), counted(state, short=True)
        trim = liars(self.share, answers)
        centre = trimmed_mean(trained(draft, k), trim)
        believed = nearest(draft.updates, centre, answers - trim)
        return outvoted(draft, centre, believed, k), counted(state, short=False)
