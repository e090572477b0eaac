"""Krum: the one update that has the nearest neighbours (Blanchard et al., 2017).

Of n answers f may lie. An answer's score is the sum of its squared distances to the n - f - 2 answers nearest to it:
liars that agree with each other are too few to have good scores, those that agree with the others do no harm.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.contract import STRICT, Draft, Site
from edgefl.robust.votes import Share, blocks, by_median, counted, liars, outvoted, too_few, trained
from edgefl.vector import Array, State, Vector


def krum_scores(deltas: Sequence[Vector], f: int) -> Array:
    """The score of each delta, the smaller the better, where `f` of them may lie."""
    n = len(deltas)
    if n < f + 3:
        raise ValueError(f"{n} updates of which {f} may lie have no neighbours to be judged by")
    squares = np.zeros((n, n))
    for _, block in blocks(deltas):
        for i in range(n - 1):  # differences, not products: one long delta would swallow everybody's distances
            squares[i, i + 1 :] += ((block[i + 1 :] - block[i]) ** 2).sum(axis=1)
    squares += squares.T
    np.fill_diagonal(squares, np.inf)
    return np.asarray(np.sort(squares, axis=1)[:, : n - f - 2].sum(axis=1))


def best(deltas: Sequence[Vector], f: int) -> list[int]:
    """All of them, the best score first; of two alike the one that stands first."""
    return [int(i) for i in np.argsort(krum_scores(deltas, f), kind="stable")]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Krum:
    """The step is the best answer, as it is; believed are the n - f best. With fewer than 2 f + 3 the median stands in.

    `share` is that of the answers that may lie, rounded up: f.
    """

    name: Literal["krum"] = "krum"
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
        f, devices = liars(self.share, answers), list(draft.updates)
        order = best(trained(draft, k), f)
        believed = [devices[i] for i in order[: answers - f]]
        return outvoted(draft, draft.updates[believed[0]].delta[:k], believed, k), counted(state, short=False)


def needed(share: float, answers: int) -> int:
    """How many answers it takes to find the best, if this share of so many may lie."""
    return 2 * liars(share, answers) + 3
