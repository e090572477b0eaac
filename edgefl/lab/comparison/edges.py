"""Where a grid ended before the best value was found: the chosen one is the largest or the smallest that was tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from edgefl.job.config.reader import toml_value


@dataclass(frozen=True, slots=True)
class Edge:
    """A chosen value with no tried one beyond it."""

    key: str
    value: str  # as it was written
    side: str  # "largest" or "smallest"


def edges(chosen: Mapping[str, str], tried: Sequence[Mapping[str, str]]) -> tuple[Edge, ...]:
    """Return each chosen number that is the largest or smallest of several that were tried for its key.

    Words and switches have no order. A chosen 0 is no edge: rates, shares and strengths do not go below it.
    """
    at_edge = list[Edge]()
    for key, value in chosen.items():
        numbers = {number for values in tried if (number := _number(values[key])) is not None}
        number = _number(value)
        if number is None or len(numbers) < 2:
            continue
        if number == max(numbers):
            at_edge.append(Edge(key, value, "largest"))
        elif number == min(numbers) and number != 0:
            at_edge.append(Edge(key, value, "smallest"))
    return tuple(at_edge)


def caution(label: str, edge: Edge) -> str:
    """Return the line that says so below a table."""
    return (
        f"{label}: {edge.key} = {edge.value} is the {edge.side} value that was tried, so a {FURTHER[edge.side]} one may"
        " be better: add some to the grid"
    )


FURTHER = {"largest": "larger", "smallest": "smaller"}


def _number(text: str) -> float | None:
    value = toml_value(text)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None
