"""Multi-Krum: the mean of all updates but those with the worst neighbours (Blanchard et al., 2017)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.contract import STRICT, Draft, Site
from edgefl.robust.krum import best, needed
from edgefl.robust.votes import Share, blocks, by_median, counted, liars, outvoted, too_few, trained
from edgefl.vector import State, Vector


def multi_krum(deltas: Sequence[Vector], f: int) -> tuple[Vector, list[int]]:
    """The mean of the n - f deltas with the best scores, and which they are."""
    chosen = sorted(best(deltas, f)[: len(deltas) - f])
    mean = np.empty_like(deltas[0])
    for columns, block in blocks([deltas[i] for i in chosen]):
        mean[columns] = block.mean(axis=0)
    return mean, chosen


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MultiKrum:
    """The step is the mean of the n - f best answers, which are believed; with fewer than 2 f + 3 the median stands in.

    `share` is that of the answers that may lie, rounded up: f.
    """

    name: Literal["multi_krum"] = "multi_krum"
    share: Share = 0.3

    individual: ClassVar[bool] = True
    makes_step: ClassVar[bool] = True
    outvotes: ClassVar[bool] = True

    def needs(self, answers: int) -> int:
        return needed(self.share, answers)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, answers = site.model.layout.trainable, len(draft.updates)
        if too_few(draft, self.name, self.needs(answers), instead="the median stands in"):
            return by_median(draft, k), counted(state, short=True)
        devices = list(draft.updates)
        centre, chosen = multi_krum(trained(draft, k), liars(self.share, answers))
        return outvoted(draft, centre, [devices[i] for i in chosen], k), counted(state, short=False)
