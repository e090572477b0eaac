"""Oort: those first from whom there is much to learn, and who are not too slow (Lai et al., 2021)."""

from collections.abc import Sequence
from math import log, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from edgefl.base import seeds
from edgefl.learn.selection import claims
from edgefl.learn.selection.base import Candidate, Kind

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class Oort:
    """A device that has answered is worth its samples times the root of their mean squared loss, and more with time.

    Each place of the order goes to one that has never answered with a chance of `explore`, which shrinks by `decay`
    from draw to draw down to `least`. One whose work takes longer than `seconds` is worth (seconds / its own)^penalty
    as much; unless said, time does not matter, and every driver asks the same devices.
    """

    name: Literal["oort"] = "oort"
    explore: Share = 0.9
    decay: Share = 0.98
    least: Share = 0.2
    clip: Annotated[float, Field(gt=0, le=1)] = 0.95
    seconds: Annotated[float, Field(gt=0)] | None = None
    penalty: Annotated[float, Field(ge=0)] = 2.0

    loss: ClassVar[Kind] = "rms"

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        worth, failures = self.worth(draw, candidates), {one.id: one.failures for one in candidates}
        lots = seeds.sample(seed, draw, failures, len(failures))
        known = sorted((one for one in lots if one in worth), key=lambda one: (failures[one], -worth[one]))
        unknown = sorted((one for one in lots if one not in worth), key=lambda one: failures[one])
        chances = seeds.stream(seed, draw, "explore").random(len(lots))
        chance = max(self.least, self.explore * self.decay ** max(0, draw - 1))
        order = []
        for luck in chances.tolist():
            explores = unknown and (luck < chance or not known)
            order.append((unknown if explores else known).pop(0))
        return order

    def worth(self, draw: int, candidates: Sequence[Candidate]) -> dict[str, float]:
        """What each device that has answered is worth, as a share of the greatest, and with what its rest adds."""
        samples, losses = claims.samples(candidates), claims.losses(candidates, self.clip)
        plain = {id: samples[id] * loss for id, loss in losses.items()}
        greatest = max(plain.values(), default=0.0) or 1.0
        worth = {}
        for one in candidates:
            if one.id in plain:
                rested = sqrt(0.1 * log(max(1, draw)) / max(1, one.counted))
                worth[one.id] = (plain[one.id] / greatest + rested) * self._haste(one)
        return worth

    def _haste(self, one: Candidate) -> float:
        if self.seconds is None or one.seconds is None or one.seconds <= self.seconds:
            return 1.0
        return float((self.seconds / one.seconds) ** self.penalty)
