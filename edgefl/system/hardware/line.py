"""How long bytes are on their way."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Line:
    """A client's line to the broker."""

    latency: float = 0.0  # seconds, one way
    up: float = inf  # bytes per second
    down: float = inf
