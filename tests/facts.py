"""What a run tells, as its readers see it: one JSON object for each fact."""

from collections.abc import Callable
from typing import Any

from edgefl.events import Tell, as_json


def in_json(take: Callable[[dict[str, Any]], Any]) -> Tell:
    """Somebody who is told facts, and passes them on as JSON objects."""
    return lambda fact: take(as_json(fact))
