"""What algorithms count while they work: every single number in a stage's state or beside an update is reported.

So an algorithm that wants something to be seen keeps it as an array without dimensions, and says no more about it.
"""

from collections.abc import Mapping
from math import isfinite

from edgefl.base.events import Round
from edgefl.base.vector import State
from edgefl.learn.contract import Update

Numbers = dict[str, float | None]  # None: not finite, which JSON cannot say


def of_stages(states: Mapping[str, State]) -> dict[str, Numbers]:
    """The numbers of every stage that has some, by its name."""
    by_stage = {stage: singles(state) for stage, state in states.items()}
    return {stage: numbers for stage, numbers in by_stage.items() if numbers}


def of_updates(updates: Mapping[str, Update]) -> dict[str, float]:
    """The numbers that the updates brought along, summed over the devices."""
    total: dict[str, float] = {}
    for _, update in sorted(updates.items()):
        for name, value in singles(update.extra).items():
            total[name] = total.get(name, 0) + (value or 0)
    return total


def named(fact: Round) -> Numbers:
    """Return all that a round counted, by flat names: stages/memory/shrunk, updates/corrected, and how many bounded."""
    counted: Numbers = {f"updates/{name}": value for name, value in fact.updates.items()}
    for stage, numbers in fact.stages.items():
        counted |= {f"stages/{stage}/{name}": value for name, value in numbers.items()}
    return {**counted, "bounded": len(fact.bounded)}


def singles(state: State) -> Numbers:
    """The arrays that are one number each."""
    return {
        name: array.item() if isfinite(array.item()) else None
        for name, array in state.items()
        if array.ndim == 0 and array.dtype.kind in "biuf"
    }
