"""The geometric median: the point with the least sum of distances to all updates (Pillutla et al., 2022, as RFA)."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector
from edgefl.learn.contract import STRICT, Draft, Site
from edgefl.learn.robust.votes import (
    OUTVOTED,
    VOTE,
    blocks,
    counted,
    distances,
    median,
    nearest,
    outvoted,
    too_few,
    trained,
)

SMOOTH = 1e-6  # of the median distance: nearer than that counts as being there


def geometric_median(deltas: Sequence[Vector], iterations: int = 20, tolerance: float = 1e-6) -> Vector:
    """Weiszfeld's algorithm, from the median on: means in which the far ones weigh less, again and again.

    It ends when the point moves by less than `tolerance` times the median distance.
    """
    centre = median(deltas).astype(np.float64)
    for _ in range(iterations):
        far = distances(deltas, centre)
        usual = float(np.median(far))
        if usual == 0:  # more than half of them are in one place
            break
        pull = 1 / np.maximum(far, SMOOTH * usual)
        pull /= pull.sum()
        before, centre = centre, np.empty_like(centre)
        for columns, block in blocks(deltas):
            centre[columns] = (pull[:, None] * block).sum(axis=0)
        if np.linalg.norm(centre - before) <= tolerance * usual:
            break
    return np.asarray(centre.astype(deltas[0].dtype))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class GeometricMedian:
    """The step is the geometric median; believed are the nearer half of the answers, and one more.

    Of fewer than three answers none is outvoted: such rounds are counted (`short`).
    """

    name: Literal["geometric_median"] = "geometric_median"
    iterations: Annotated[int, Field(ge=1)] = 20

    traits = VOTE

    def needs(self, answers: int) -> int:  # noqa: ARG002
        return OUTVOTED

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k = site.model.layout.trainable
        short = too_few(draft, self.name, OUTVOTED, instead="a point between them, in which none is outvoted")
        centre = geometric_median(trained(draft, k), self.iterations)
        believed = nearest(draft.updates, centre, len(draft.updates) // 2 + 1)
        return outvoted(draft, centre, believed, k), counted(state, short)
