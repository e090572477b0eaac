"""In time: every device whose work fits into a round has the same chance (after FedCS, Nishio et al., 2019)."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from edgefl.base import seeds
from edgefl.learn.selection.base import Candidate


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class InTime:
    """Those whose last work took at most `seconds`, or is not known yet, by the seed; the others behind, by speed."""

    name: Literal["deadline"] = "deadline"
    seconds: Annotated[float, Field(gt=0)] = 30.0

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        late = {one.id: one.seconds or 0.0 for one in candidates if (one.seconds or 0.0) > self.seconds}
        failures = {one.id: one.failures for one in candidates}
        lots = seeds.sample(seed, draw, failures, len(failures))
        return sorted(lots, key=lambda one: (one in late, failures[one], late.get(one, 0.0)))
