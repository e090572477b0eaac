"""Krum: the update with the nearest neighbours; Multi-Krum: the mean of all but the worst (Blanchard et al., 2017).

Of n answers f may lie. An answer's score is the sum of its squared distances to the n - f - 2 answers nearest to it.
Liars that agree with each other are too few to get good scores; liars that agree with the honest devices do no harm.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.contract import STRICT, Draft, Site
from edgefl.learn.robust.votes import VOTE, Share, blocks, by_median, counted, liars, outvoted, too_few, trained

Centre: TypeAlias = Callable[[Sequence[Vector], list[int]], Vector]

FEW = 32  # answers whose distances are found by differences, to the last bit
DIGITS = 30  # binary ones, that a score has where there are more


def krum_scores(deltas: Sequence[Vector], f: int) -> Array:
    """The score of each delta, the smaller the better, where `f` of them may lie."""
    n = len(deltas)
    if n < f + 3:
        raise ValueError(f"{n} updates of which {f} may lie have no neighbours to be judged by")
    squares = by_differences(deltas) if n <= FEW else by_products(deltas)
    np.fill_diagonal(squares, np.inf)
    scores = np.asarray(np.sort(squares, axis=1)[:, : n - f - 2].sum(axis=1))
    return scores if n <= FEW else rounded(scores)


def by_differences(deltas: Sequence[Vector]) -> Array:
    """The squared distance between each two of them; its time grows with the square of their number."""
    n = len(deltas)
    squares = np.zeros((n, n))
    for _, block in blocks(deltas):
        for i in range(n - 1):
            squares[i, i + 1 :] += ((block[i + 1 :] - block[i]) ** 2).sum(axis=1)
    return np.asarray(squares + squares.T)


def by_products(deltas: Sequence[Vector]) -> Array:
    """The same as |a|^2 + |b|^2 - 2 a b, a product of matrices: thirty times as fast for a thousand of them.

    None is moved to a common centre before: one long answer would swallow the distances of all others.
    """
    products = np.zeros((len(deltas), len(deltas)))
    for _, block in blocks(deltas):
        products += block @ block.T
    lengths = np.diag(products)
    return np.asarray(np.maximum(lengths[:, None] + lengths - 2 * products, 0))


def rounded(scores: Array) -> Array:
    """The scores to nine digits: a product's last bits are BLAS's own, and who says the same must score the same."""
    mantissa, exponent = np.frexp(scores)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**DIGITS), exponent - DIGITS))


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

    traits = VOTE

    def needs(self, answers: int) -> int:
        return needed(self.share, answers)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k = site.model.layout.trainable
        return by_neighbours(draft, state, k, self.name, self.share, lambda deltas, best: deltas[best[0]])


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


def by_neighbours(  # noqa: PLR0917 - what a stage has, and how it makes its step
    draft: Draft, state: State, trainable: int, stage: str, share: float, centre: Centre
) -> tuple[Draft, State]:
    """Believe those with the best scores; the step is what `centre` makes of all deltas and the best ones' places."""
    answers = len(draft.updates)
    if too_few(draft, stage, needed(share, answers), instead="the median stands in"):
        return by_median(draft, trainable), counted(state, short=True)
    f, deltas, devices = liars(share, answers), trained(draft, trainable), list(draft.updates)
    chosen = best(deltas, f)[: answers - f]
    step = centre(deltas, chosen)
    return outvoted(draft, step, [devices[i] for i in chosen], trainable), counted(state, short=False)


def needed(share: float, answers: int) -> int:
    """Return how many answers are needed to find the best, if this share of the cohort may lie."""
    return 2 * liars(share, answers) + 3


def mean_of(deltas: Sequence[Vector], chosen: Sequence[int]) -> Vector:
    """The mean of those at these places, in whatever order they are named."""
    mean = np.empty_like(deltas[0])
    for columns, block in blocks([deltas[i] for i in sorted(chosen)]):
        mean[columns] = block.mean(axis=0)
    return mean
