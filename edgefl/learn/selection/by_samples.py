"""Who has more data is asked more often."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.learn.selection import claims
from edgefl.learn.selection.base import Candidate


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class BySamples:
    """Drawn with a chance in proportion to the number of samples, of which at most five times the median count.

    The mean of their answers should then be uniform (`algorithm.weights = "uniform"`): else data count twice.
    """

    name: Literal["samples"] = "samples"

    by_samples: ClassVar[bool] = True

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        return claims.by_weight(claims.samples(candidates), seed, draw)
