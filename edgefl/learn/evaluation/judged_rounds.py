"""Rounds with the figures of their models: readers of curves need not know whether coordinator or devices judge."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from edgefl.base.events import Done, Evaluated, Evaluating, Fact, Round

R = TypeVar("R", bound=Round)


def with_scores(report: R, evaluated: Evaluated | Done) -> R:
    """The report of a round with what devices saw of its model, unless the coordinator looked at it itself."""
    if report.scores or not evaluated.scores:
        return report
    names = ("scores", "per_target", "per_class", "forgetting")
    return replace(report, **{name: getattr(evaluated, name) for name in names if hasattr(evaluated, name)})


def judged_rounds(facts: Iterable[Fact]) -> list[Round]:
    """The rounds among these facts, as far as they are judged; a model may be looked at once more at the end."""
    rounds: dict[int, Round] = {}
    for fact in facts:
        if isinstance(fact, Round):
            rounds[fact.round] = fact
        elif isinstance(fact, Evaluated) and fact.round in rounds:
            rounds[fact.round] = with_scores(rounds[fact.round], fact)
        elif isinstance(fact, Done) and fact.rounds in rounds:
            rounds[fact.rounds] = with_scores(rounds[fact.rounds], fact)
    return list(rounds.values())


def first_model(facts: Iterable[Fact]) -> Round | None:
    """Return the figures of the model that a run began with, as the report of a round 0 without devices."""
    for fact in facts:
        if isinstance(fact, Evaluating) and fact.first is not None:
            return Round(0, fact.first)
        if isinstance(fact, Evaluated) and fact.round == 0 and fact.scores:
            return with_scores(Round(0), fact)
    return None
