"""What each round of a run is for: a pure function of its number, the same for coordinator, loop and machine.

    0             describe   where a run needs to know its fleet's data as a whole: each device says what it has, once
    1 .. rounds   train      devices train; where the run is judged by them, they evaluate the model they received too
    rounds + 1    evaluate   devices only evaluate, so that the last model is judged like those before it

A round that does not train makes no model: an answer counts for its figures alone.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Purpose: TypeAlias = Literal["train", "evaluate", "describe"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rounds of a run, from the first to the last."""

    rounds: int  # that train
    evaluates: bool = False  # one more, for the last model
    describes: bool = False  # and one before all others

    def purpose(self, round: int) -> Purpose:
        """What this round is for. After a run was shortened the next one may be far behind the last that trains."""
        if round < 1:
            return "describe"
        return "train" if round <= self.rounds else "evaluate"

    @property
    def first(self) -> int:
        """The number of the first round."""
        return 0 if self.describes else 1

    def follows(self, round: int) -> bool:
        """Whether there is a round behind this one, which trained."""
        return round < self.rounds or self.evaluates
