"""Who has been heard least recently goes first: every device has its say, also in a fleet that comes and goes."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from edgefl.base import seeds
from edgefl.learn.selection.base import Candidate


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class Fresh:
    """Those that were never counted, then those that were counted longest ago; among equals the seed decides.

    A device that was asked in vain waits behind those of its group that were not, so that one that never answers does
    not take a place in every round.
    """

    name: Literal["fresh"] = "fresh"

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        known = {one.id: one for one in candidates}
        lots = seeds.sample(seed, draw, known, len(known))
        return sorted(lots, key=lambda one: (known[one].counted, known[one].failures))
