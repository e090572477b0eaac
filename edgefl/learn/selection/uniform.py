"""Every device with the same chance, drawn by the seed."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.base import seeds
from edgefl.learn.selection.base import Candidate


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class Uniform:
    """The default: a fresh permutation for every draw, which looks at nothing but the ids."""

    name: Literal["uniform"] = "uniform"

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        return seeds.sample(seed, draw, (one.id for one in candidates), len(candidates))
