"""Multi-Krum: the mean of all updates but those with the worst neighbours (Blanchard et al., 2017)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector
from edgefl.learn.contract import STRICT, Draft, Site
from edgefl.learn.robust.krum import by_neighbours, needed
from edgefl.learn.robust.votes import VOTE, Share, blocks


def mean_of(deltas: Sequence[Vector], chosen: Sequence[int]) -> Vector:
    """The mean of those at these places, in whatever order they are named."""
    mean = np.empty_like(deltas[0])
    for columns, block in blocks([deltas[i] for i in sorted(chosen)]):
        mean[columns] = block.mean(axis=0)
    return mean


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MultiKrum:
    """The step is the mean of the n - f best answers, which are believed; with fewer than 2 f + 3 the median stands in.

    `share` is that of the answers that may lie, rounded up: f.
    """

    name: Literal["multi_krum"] = "multi_krum"
    share: Share = 0.3

    traits = VOTE

    def needs(self, answers: int) -> int:
        return needed(self.share, answers)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        return by_neighbours(draft, state, site.model.layout.trainable, self.name, self.share, mean_of)
