"""Limit how many facts of each kind one device puts into the story in an hour; count further ones. Pure.

This bounds what is written down; readers at work are told every fact. It holds for every lasting fact that names a
device, also for those that are added later. Two kinds are exempt: words that changed where the rounds stand, which
rounds bound, and `LeftOut`, of which a device has one an hour.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.base.records import replace

HOUR = 3600.0  # seconds
FACTS = 20  # of one kind,
VITALS = 80  # and how its machine fares: a device at work tells that once a minute
DEVICES = 20_000  # whose hours are remembered
WORDS = events.Answered, events.Declined, events.Busy  # to a round, which may heed them
COMING = "joined", "lost"


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a device: when it began, and how many facts of each kind went into the story, or were left out."""

    began: float
    told: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def counted(self, kind: str) -> "Hour":
        """After one more fact of this kind."""
        if self.told.get(kind, 0) < (VITALS if kind == "vitals" else FACTS):
            return replace(self, told={**self.told, kind: self.told.get(kind, 0) + 1})
        return replace(self, left_out={**self.left_out, kind: self.left_out.get(kind, 0) + 1})


@dataclass(frozen=True, slots=True)
class StoryLimit:
    """The hours of all devices; `due` is when one ends of which something was left out."""

    hours: Mapping[str, Hour] = field(default_factory=dict)
    due: float | None = None

    def admitted(self, facts: Iterable[Fact], at: float, *, heeded: bool) -> tuple["StoryLimit", frozenset[int]]:
        """After these facts; the places of those that are left out. `heeded`: they changed where the rounds stand."""
        limit, left_out = self, []
        for place, fact in enumerate(facts):
            device = _limited_device(fact)
            if device is not None and not (heeded and isinstance(fact, WORDS)):
                limit, fits = limit._counted(device, type(fact).__name__.lower(), at)
                left_out += [] if fits else [place]
        return limit, frozenset(left_out)

    def _counted(self, device: str, kind: str, at: float) -> tuple["StoryLimit", bool]:
        hour = self.hours.get(device)
        if hour is None or (at >= hour.began + HOUR and not hour.left_out):
            hour = Hour(at)
        after = hour.counted(kind)
        fits = after.left_out is hour.left_out
        ends = hour.began + HOUR
        due = self.due if fits else ends if self.due is None else min(self.due, ends)
        rest = self.hours if device in self.hours or len(self.hours) < DEVICES else _without_oldest(self.hours)
        return StoryLimit({**rest, device: after}, due), fits

    def ended(self, at: float, is_there: Callable[[str], bool]) -> tuple["StoryLimit", tuple[events.LeftOut, ...]]:
        """After the hours that have ended by then; what was left out in them."""
        over = {device: hour for device, hour in self.hours.items() if at >= hour.began + HOUR}
        rest = {device: hour for device, hour in self.hours.items() if device not in over}
        due = min((hour.began + HOUR for hour in rest.values() if hour.left_out), default=None)
        told = [events.LeftOut(id, dict(hour.left_out), is_there(id)) for id, hour in over.items() if hour.left_out]
        return StoryLimit(rest, due), tuple(told)

    def is_unsteady(self, device: str, at: float) -> bool:
        """Whether the device has come or gone so often in this hour that it is left out."""
        hour = self.hours.get(device)
        return hour is not None and at < hour.began + HOUR and any(kind in hour.left_out for kind in COMING)


def recalled(story: Iterable[Fact], at: float, wall: float) -> StoryLimit:
    """What the story of the last hour says, after a restart: `at` on the clock of events is the time `wall`.

    Facts that are later than that are of now: the clock was set back.
    """
    limit = StoryLimit()
    for fact in story:
        age = max(0.0, wall - fact.at)
        if age < HOUR:
            heeded = isinstance(fact, events.Answered) and fact.verdict == "accepted"
            after, left_out = limit.admitted((fact,), at - age, heeded=heeded)
            limit = limit if left_out else after
    return limit


def _limited_device(fact: Fact) -> str | None:
    """Return the device whose hour this fact counts in; None if it is not limited."""
    if not fact.lasting or isinstance(fact, events.LeftOut):
        return None
    device: str | None = getattr(fact, "device", None)
    return device


def _without_oldest(hours: Mapping[str, Hour]) -> dict[str, Hour]:
    """Without the hour that is remembered longest, and of which nothing was left out, if there is one."""
    gone = next((device for device, hour in hours.items() if not hour.left_out), next(iter(hours)))
    return {device: hour for device, hour in hours.items() if device != gone}
