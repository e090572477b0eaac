"""The fastest first: short rounds, in which slow devices have no say."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.base import seeds
from edgefl.learn.selection.base import Candidate


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class Fastest:
    """Those whose speed is not known yet, then those whose last work took least; who was asked in vain comes last."""

    name: Literal["fastest"] = "fastest"

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        known = {one.id: one for one in candidates}
        lots = seeds.sample(seed, draw, known, len(known))
        return sorted(lots, key=lambda one: (known[one].failures, known[one].seconds or 0.0))
