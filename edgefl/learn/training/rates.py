"""The learning rate from round to round: a factor that follows from the number of the round, and nothing else.

    constant   1
    step       factor^k after k times `every` rounds
    cosine     half a cosine from 1 towards `floor` over `rounds` rounds; behind them it stays where it was

In the first `warmup` rounds the rate rises to it in equal steps, and the schedule begins behind them.
"""

from dataclasses import replace
from math import cos, pi
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass as parameters


@parameters(frozen=True, config={"extra": "forbid"}, kw_only=True)
class Rates:
    """How the rate of local descent changes."""

    name: Literal["constant", "step", "cosine"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0  # rounds
    every: Annotated[int, Field(ge=1)] = 10  # rounds, of step
    factor: Annotated[float, Field(gt=0, le=1)] = 0.5  # of step
    rounds: Annotated[int, Field(ge=1)] | None = None  # of cosine: as many as the run has, as a rule
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0  # of cosine

    @model_validator(mode="after")
    def _knows_its_end(self) -> "Rates":
        if self.name == "cosine" and self.rounds is None:
            raise ValueError('a cosine needs its end: lr_schedule = { name = "cosine", rounds = ... }')
        return self

    def at(self, round: int) -> float:
        """The share of the rate that this round has; the first round is 1."""
        if round <= self.warmup:
            return round / (self.warmup + 1)
        gone = round - self.warmup - 1
        if self.name == "step":
            return self.factor ** (gone // self.every)
        if self.name == "cosine" and self.rounds is not None:
            span = max(1, self.rounds - self.warmup)
            left = (1 + cos(pi * min(gone, span - 1) / span)) / 2
            return self.floor + (1 - self.floor) * left
        return 1.0


def _table(given: Any) -> Any:  # Any: pydantic's own
    return {"name": given} if isinstance(given, str) else given


Named: TypeAlias = Annotated[Rates, BeforeValidator(_table)]
T = TypeVar("T")


@runtime_checkable
class Scheduled(Protocol):
    """An algorithm whose rate may change from round to round."""

    @property
    def lr(self) -> float: ...

    @property
    def lr_schedule(self) -> Rates | None: ...


def scheduled(algorithm: T, round: int) -> T:
    """The algorithm with the rate of this round."""
    if not isinstance(algorithm, Scheduled) or algorithm.lr_schedule is None:
        return algorithm
    return replace(algorithm, lr=algorithm.lr * algorithm.lr_schedule.at(round))  # type: ignore[type-var]  # a dataclass
