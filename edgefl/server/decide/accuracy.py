"""Whether a model has become worse on a device than it used to be there. Pure.

A device is low if its accuracy is below the median of its last RECENT evaluations by the allowed drop, twice in a row:
one evaluation on few samples says little. What a device reaches while it is low does not lower what is usual.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgefl.base.records import replace

RECENT = 5  # evaluations that say what is usual
LEAST = 3  # of them, before anything can have fallen


@dataclass(frozen=True, slots=True)
class DevicesScored:
    """Devices have evaluated the model of this round; `series` are the runs whose models follow on each other."""

    wall: float
    fleet: str
    series: str
    run: str
    round: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AccuracyLevels:
    """The last accuracies of each device, and which devices are low."""

    run: str = ""
    round: int = -1  # the last that was counted: a run's story is read again after a restart
    recent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    below: frozenset[str] = frozenset()  # once
    low: frozenset[str] = frozenset()


def usual(recent: tuple[float, ...]) -> float:
    """The median."""
    ordered = sorted(recent)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def compared(levels: AccuracyLevels, event: DevicesScored, drop: float) -> AccuracyLevels:
    """What follows from an evaluation; the same object if it was counted before."""
    if event.run == levels.run and event.round <= levels.round:
        return levels
    recent, below, low = dict(levels.recent), set(levels.below), set(levels.low)
    for device, score in event.scores.items():
        past = recent.get(device, ())
        if len(past) >= LEAST and score < usual(past) - drop:
            if device in below:
                low.add(device)
            below.add(device)
        else:
            recent[device] = (*past, score)[-RECENT:]
            below.discard(device)
            low.discard(device)
    return AccuracyLevels(event.run, event.round, recent, frozenset(below), frozenset(low))


def forgotten(levels: AccuracyLevels, device: str) -> AccuracyLevels:
    """What it reaches from now on is usual."""
    recent = {name: scores for name, scores in levels.recent.items() if name != device}
    return replace(levels, recent=recent, below=levels.below - {device}, low=levels.low - {device})
