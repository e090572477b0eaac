"""Norm clipping: no update is longer than the usual one of its round (Sun et al., 2019)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector, norm
from edgefl.learn.contract import STRICT, Draft, Site, Traits
from edgefl.learn.robust.votes import OUTVOTED, counted, settled, too_few, trained, usual_statistics
from edgefl.learn.robustness import lower_median


def clip_factors(deltas: Sequence[Vector], times: float = 1.0) -> list[float]:
    """What each delta is multiplied by, so that none is longer than `times` the median length."""
    lengths = [norm(delta) for delta in deltas]
    limit = times * lower_median(lengths)
    return [min(1.0, limit / length) if length else 1.0 for length in lengths]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class NormClip:
    """Changes the updates and makes no step: `mean`, or another stage that makes one, comes behind it.

    All answers go on, with one vote each. Of two the shorter is the measure, and one alone is its own: such rounds are
    counted (`short`), and so is in each round how many were clipped (`clipped`).
    """

    name: Literal["norm_clip"] = "norm_clip"
    times: Annotated[float, Field(gt=0)] = 1.0  # the median length

    traits = Traits(
        individual=True,
        one_model="it gives every answer one voice whatever its age; guards.norm_cap bounds lengths too",
        without_devices=True,
    )

    def needs(self, answers: int) -> int:  # noqa: ARG002
        return OUTVOTED

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        if not draft.updates:
            return draft, state
        k = site.model.layout.trainable
        short = too_few(draft, self.name, OUTVOTED, instead="the shorter one is the measure")
        factors, statistics = clip_factors(trained(draft, k), self.times), usual_statistics(draft, k)
        clipped = {
            device: settled(update, k, statistics, factor)
            for (device, update), factor in zip(draft.updates.items(), factors, strict=True)
        }
        told = {"clipped": np.array(sum(factor < 1 for factor in factors), np.int64)}
        return replace(draft, updates=clipped, late={}), {**counted(state, short), **told}
