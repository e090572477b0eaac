"""Who was slow: how long each answer took, kept in little room, and what that says of each device."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isnan, nan
from statistics import median, median_low

from edgefl.base.events import Answered

KEPT = 400_000  # answers, some 40 bytes each; of more than that the oldest are forgotten
WORTH = 2.0  # this multiple of the time of its cohort is slow
NOTICED = 1.0  # seconds above its cohort that a round must have waited for a device
# Rounds that waited for a device that is slow now and then: a share of its answers, within these two numbers.
SHARE, OFTEN, ALWAYS = 0.01, 3, 9


@dataclass(slots=True, frozen=True)
class AnswerTime:
    """One answer of a device to a round."""

    device: str
    round: int
    at: float
    took: float | None  # None: it is not known when it was asked, there was a restart between
    seconds_per_step: float | None
    late: bool


@dataclass(slots=True, frozen=True)
class Pace:
    """How fast a device was in some span of time, measured against those who were asked with it."""

    device: str
    answers: int = 0  # that counted, or came late
    late: int = 0
    missed: int = 0  # rounds that were closed without it
    median_took: float | None = None
    slowest_took: float | None = None
    slowest_round: int | None = None
    seconds_per_step: float | None = None  # the median
    times_cohort: float | None = None  # the median of how many times longer it took than the median of its round
    held_up: int = 0  # rounds in which it took twice as long as its cohort, and at least a second longer

    @property
    def slow(self) -> bool:
        """Whether rounds waited for it, always or now and then, or did not get it at all."""
        often = self.held_up >= min(ALWAYS, max(OFTEN, SHARE * self.answers))
        return self.late > 0 or self.missed > 0 or often or (self.times_cohort or 0.0) >= WORTH


@dataclass(slots=True, frozen=True)
class UsualTimes:
    """How long the answers to one round took."""

    middle: float  # the median
    low: float  # the same, of two middle ones the faster: in a cohort of two one slow device is measured by the other

    def waited_for(self, took: float) -> bool:
        """Whether the round waited for an answer that took so long."""
        return took >= WORTH * self.low and took >= self.low + NOTICED


@dataclass(slots=True)
class AnswerTimes:
    """All answers, oldest first."""

    kept: int = KEPT
    _names: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _device: "array[int]" = field(default_factory=lambda: array("I"))
    _round: "array[int]" = field(default_factory=lambda: array("I"))
    _late: "array[int]" = field(default_factory=lambda: array("B"))
    _at: "array[float]" = field(default_factory=lambda: array("d"))
    _took: "array[float]" = field(default_factory=lambda: array("d"))
    _pace: "array[float]" = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self._at)

    def add(self, answer: Answered) -> None:
        """One more."""
        if answer.device not in self._numbers:
            self._numbers[answer.device] = len(self._names)
            self._names.append(answer.device)
        self._device.append(self._numbers[answer.device])
        self._round.append(answer.round)
        self._late.append(answer.verdict == "late")
        self._at.append(answer.at)
        self._took.append(nan if answer.took is None else answer.took)
        self._pace.append(nan if answer.seconds_per_step is None else answer.seconds_per_step)
        if len(self) > self.kept:
            for column in (self._device, self._round, self._late, self._at, self._took, self._pace):
                del column[: self.kept // 4]

    def between(self, since: float | None = None, until: float | None = None) -> Iterator[AnswerTime]:
        """Those in this span of time."""
        for i, at in enumerate(self._at):
            if within(at, since, until):
                yield self._turn(i)

    def of(self, device: str, last: int) -> list[AnswerTime]:
        """The last ones of a device, oldest first."""
        number = self._numbers.get(device)
        own = (i for i in range(len(self) - 1, -1, -1) if self._device[i] == number)
        return [self._turn(i) for i in islice(own, last)][::-1]

    def _turn(self, i: int) -> AnswerTime:
        pace = self._pace[i]
        name = self._names[self._device[i]]
        return AnswerTime(
            name, self._round[i], self._at[i], self._took[i], None if isnan(pace) else pace, bool(self._late[i])
        )


def within(at: float, since: float | None, until: float | None) -> bool:
    """Whether that was in this span of time, which may be open at either end."""
    return (since is None or at >= since) and (until is None or at < until)


def paces(turns: Sequence[AnswerTime], missed: Mapping[str, int]) -> list[Pace]:
    """What these answers say of each device, and how many rounds were closed without it; the slowest first."""
    rounds: dict[int, list[float]] = {}
    devices: dict[str, list[AnswerTime]] = {name: [] for name in missed}
    for turn in turns:
        devices.setdefault(turn.device, []).append(turn)
        if turn.took is not None:
            rounds.setdefault(turn.round, []).append(turn.took)
    usual = {round: UsualTimes(median(took), median_low(took)) for round, took in rounds.items()}
    each = [_pace(name, own, usual, missed.get(name, 0)) for name, own in devices.items()]
    return sorted(each, key=lambda one: (-one.missed - one.late, not one.slow, -(one.times_cohort or 0.0), one.device))


def _pace(device: str, turns: Sequence[AnswerTime], usual: Mapping[int, UsualTimes], missed: int) -> Pace:
    timed = [(turn.took, turn.round) for turn in turns if turn.took is not None]
    steps = [turn.seconds_per_step for turn in turns if turn.seconds_per_step is not None]
    times = [took / usual[round].middle for took, round in timed if usual[round].middle > 0]
    slowest, in_round = max(timed, key=lambda one: (one[0], -one[1]), default=(None, None))
    return Pace(
        device,
        answers=len(turns),
        late=sum(turn.late for turn in turns),
        missed=missed,
        median_took=median(took for took, _ in timed) if timed else None,
        slowest_took=slowest,
        slowest_round=in_round,
        seconds_per_step=median(steps) if steps else None,
        times_cohort=median(times) if times else None,
        held_up=sum(usual[round].waited_for(took) for took, round in timed),
    )
