"""What a run tells, as its readers see it: one JSON object for each fact."""

from collections.abc import Callable
from typing import Any

from edgefl.base.events import Done, Evaluating, Round, Tell, as_record


def in_json(take: Callable[[dict[str, Any]], Any]) -> Tell:
    """Somebody who is told facts, and passes them on as JSON objects."""
    return lambda fact: take(as_record(fact))


def in_short(take: Callable[[dict[str, Any]], Any]) -> Tell:
    """The same, of rounds and ends only."""
    return lambda fact: take(as_record(fact)) if isinstance(fact, Round | Done) else None


def summed_up(take: Callable[[Any], Any]) -> Tell:
    """Somebody who wants to hear what a run is judged by, its rounds and its end."""
    return lambda fact: take(fact) if isinstance(fact, Evaluating | Round | Done) else None
