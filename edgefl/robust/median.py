"""The median of each number of the update, over the devices (Yin et al., 2018)."""

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from edgefl.contract import STRICT, Draft, Site
from edgefl.robust.votes import OUTVOTED, by_median, counted, median, too_few
from edgefl.vector import State

__all__ = ["Median", "median"]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Median:
    """The step is the median, number by number; believed are the nearer half of the answers, and one more.

    Of fewer than three answers it is their mean, and nobody is outvoted: such rounds are counted (`short`).
    """

    name: Literal["median"] = "median"

    individual: ClassVar[bool] = True
    one_model: ClassVar[str] = "a vote is about one model, and gives every answer one voice whatever its age"
    makes_step: ClassVar[bool] = True
    outvotes: ClassVar[bool] = True

    def needs(self, answers: int) -> int:  # noqa: ARG002
        return OUTVOTED

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        short = too_few(draft, self.name, OUTVOTED, instead="their mean, in which nobody is outvoted")
        return by_median(draft, site.model.layout.trainable), counted(state, short)
