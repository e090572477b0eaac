"""The median of each number of the update, over the devices (Yin et al., 2018)."""

from typing import Literal

from pydantic.dataclasses import dataclass

from edgefl.base.vector import State
from edgefl.learn.contract import STRICT, Draft, Site
from edgefl.learn.robust.votes import OUTVOTED, VOTE, by_median, counted, median, too_few

__all__ = ["Median", "median"]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Median:
    """The step is the median, number by number; believed are the nearer half of the answers, and one more.

    Of fewer than three answers it is their mean, and none is outvoted: such rounds are counted (`short`).
    """

    name: Literal["median"] = "median"

    traits = VOTE

    def needs(self, answers: int) -> int:  # noqa: ARG002
        return OUTVOTED

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        short = too_few(draft, self.name, OUTVOTED, instead="their mean, in which none is outvoted")
        return by_median(draft, site.model.layout.trainable), counted(state, short)
