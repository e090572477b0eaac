"""A round, or what devices saw of its model, as figures with names: for tools that draw curves."""

from collections.abc import Sequence
from dataclasses import fields
from math import isfinite

from edgefl.base.events import Evaluated, Round
from edgefl.base.scores import COMMON
from edgefl.learn.evaluation import counters

NOT_A_FIGURE = {"round", "at"}  # these say where on the curve
FLEET = "fleet/"  # before what devices saw on data of their own


def scalars(fact: Round | Evaluated, class_names: Sequence[str] | None = None) -> dict[str, float]:
    """Every figure of the fact that is a number, under the fact's own name for it; one for each class.

    Figures of a task that is neither classes nor real targets have `scores/` before their names.
    """
    named = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name not in NOT_A_FIGURE}
    named |= {name if name in COMMON else f"scores/{name}": value for name, value in fact.scores.items()}
    if isinstance(fact, Evaluated):
        named |= {f"local_{name}": value for name, value in fact.local_scores.items()}
    figures = {name: value for name, value in named.items() if isinstance(value, int | float)}
    for index, share in enumerate(fact.per_class or ()):
        if share is not None:
            name = class_names[index] if class_names and index < len(class_names) else str(index)
            figures[f"per_class/{name}"] = share
    if isinstance(fact, Round):
        figures |= {name: value for name, value in counters.named(fact).items() if value is not None}
    before = FLEET if isinstance(fact, Evaluated) else ""
    return {f"{before}{name}": float(value) for name, value in figures.items() if isfinite(value)}
