"""Rounds with what was said of their models, whoever said it: readers of curves need not know who judges a run."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from edgefl.evaluation.wording import SCORES
from edgefl.events import Evaluated, Fact, Round

R = TypeVar("R", bound=Round)


def with_scores(report: R, evaluated: Evaluated) -> R:
    """The report of a round with what devices saw of its model, unless the coordinator looked at it itself."""
    if report.loss is not None or evaluated.loss is None:
        return report
    return replace(report, **{name: getattr(evaluated, name) for name in (*SCORES, "per_class", "forgetting")})


def judged_rounds(facts: Iterable[Fact]) -> list[Round]:
    """The rounds among these facts, as far as they are judged."""
    rounds: dict[int, Round] = {}
    for fact in facts:
        if isinstance(fact, Round):
            rounds[fact.round] = fact
        elif isinstance(fact, Evaluated) and fact.round in rounds:
            rounds[fact.round] = with_scores(rounds[fact.round], fact)
    return list(rounds.values())
