"""Power-of-choice: of a few that are drawn, those with the largest loss are asked (Cho et al., 2022)."""

from collections.abc import Sequence
from math import ceil, inf
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from edgefl.learn.selection import claims
from edgefl.learn.selection.base import Candidate, Kind


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class PowerOfChoice:
    """`share` of the fleet is drawn, more data more often; of these the largest loss goes first, then the others.

    The loss is the one a device last told (the paper's rpow-d); who has told none yet goes first. Beyond the share
    `clip` of the fleet all losses are the same, and the draw decides. The paper's proof is for the uniform mean of the
    answers (`algorithm.weights = "uniform"`): with another, data count twice.
    """

    name: Literal["power_of_choice"] = "power_of_choice"
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    clip: Annotated[float, Field(gt=0, le=1)] = 0.9

    loss: ClassVar[Kind] = "mean"
    by_samples: ClassVar[bool] = True

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        failures, losses = {one.id: one.failures for one in candidates}, claims.losses(candidates, self.clip)
        lots = claims.by_weight(claims.samples(candidates), seed, draw)
        pool = ceil(self.share * len(lots))
        first = sorted(lots[:pool], key=lambda one: (failures[one], -losses.get(one, inf)))
        return [*first, *lots[pool:]]
