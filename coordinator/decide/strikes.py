"""How devices behave: who sends too much that cannot be used is not heard for a while. Pure; times are given."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")

RECORDS = 20_000  # devices whose strikes are remembered, and as many whose quarantine is


@dataclass(frozen=True, slots=True)
class Conduct:
    """What is known about the behaviour of each device."""

    limit: int  # strikes that mean quarantine
    seconds: float  # that it lasts, and that strikes are remembered
    strikes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # when it sent what could not be used
    until: Mapping[str, float] = field(default_factory=dict)  # when its quarantine ends

    def quarantined(self, device: str, now: float) -> bool:
        return now < self.until.get(device, now)

    def struck(self, device: str, now: float) -> tuple["Conduct", bool]:
        """After one more thing that could not be used; whether the device goes into quarantine for it."""
        strikes = (*(at for at in self.strikes.get(device, ()) if at >= now - self.seconds), now)
        if len(strikes) < self.limit or self.quarantined(device, now):
            return replace(self, strikes=_bounded({**self.strikes, device: strikes}, device)), False
        rest = {id: times for id, times in self.strikes.items() if id != device}
        return replace(self, strikes=rest, until=_bounded({**self.until, device: now + self.seconds}, device)), True

    def released(self, now: float) -> tuple["Conduct", tuple[str, ...]]:
        """After a look at the clock; whose quarantine has just ended."""
        free = tuple(sorted(id for id, until in self.until.items() if until <= now))
        rest = {id: until for id, until in self.until.items() if until > now}
        return (replace(self, until=rest), free) if free else (self, ())

    def deadline(self) -> float | None:
        """When the next quarantine ends."""
        return min(self.until.values(), default=None)


def _bounded(records: dict[str, T], latest: str) -> dict[str, T]:
    """The oldest is forgotten, when there are too many to remember."""
    if len(records) > RECORDS:
        del records[next(id for id in records if id != latest)]
    return records
