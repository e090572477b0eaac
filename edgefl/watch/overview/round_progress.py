"""The course of a round: everything that is told of it before its report, and the row that it becomes."""

from dataclasses import dataclass, field, fields, replace
from statistics import median
from typing import Any

from edgefl.base.events import Answered, Evaluated, Round
from edgefl.learn.evaluation import figures as judging
from edgefl.watch.overview.rows import Best, OpenRound, RoundRow, Slowest

REASONS = 50  # of devices that declined a round are kept


@dataclass(slots=True)
class RoundProgress:
    """A round that is not reported yet."""

    open: OpenRound
    abandoned: int = 0
    took: list[float] = field(default_factory=list)
    slowest: Slowest | None = None
    missing: tuple[str, ...] = ()
    late: list[str] = field(default_factory=list)

    def ask(self, devices: tuple[str, ...], bytes_down: int) -> None:
        """They are awaited, whatever they were before."""
        here = self.open
        asked, there = set(here.asked), {*here.awaited, *here.answered}
        here.asked += [device for device in devices if device not in asked]
        here.awaited += [device for device in devices if device not in there]
        for device in devices:
            here.declined.pop(device, None)
        here.bytes_down += bytes_down

    def answer(self, answer: Answered) -> None:
        """One more that counts."""
        self._time(answer)
        if answer.device not in self.open.answered:
            self.open.answered.append(answer.device)
        self.leave(answer.device)

    def come_late(self, answer: Answered) -> None:
        """It is closed, and not merged yet."""
        self._time(answer)
        self.late.append(answer.device)

    def decline(self, device: str, reason: str) -> None:
        self.leave(device)
        if len(self.open.declined) < REASONS:
            self.open.declined[device] = reason

    def leave(self, device: str) -> None:
        """It is not awaited any more."""
        if device in self.open.awaited:
            self.open.awaited.remove(device)

    def close(self, missing: tuple[str, ...], at: float) -> None:
        self.open.awaited, self.open.closed_at, self.missing = [], at, missing

    def give_up(self) -> None:
        """It will be opened again, and asks anew."""
        here = self.open
        here.asked, here.answered, here.awaited, here.declined = [], [], [], {}
        self.abandoned, self.took, self.slowest = self.abandoned + 1, [], None

    def row(self, report: Round) -> RoundRow:
        """The round as it went."""
        here = self.open
        closed = here.closed_at
        return RoundRow(
            **figures(report),
            asked=len(here.asked),
            abandoned=self.abandoned,
            extended=here.extended,
            missing=self.missing,
            late_devices=tuple(self.late),
            declined=dict(here.declined),
            slowest=self.slowest,
            median_took=median(self.took) if self.took else None,
            training_seconds=None if closed is None else max(0.0, closed - here.opened_at),
            merging_seconds=None if closed is None else max(0.0, report.at - closed),
        )

    def _time(self, answer: Answered) -> None:
        if answer.took is not None:
            self.took.append(answer.took)
            self.slowest = slower(self.slowest, answer)


def figures(report: Round) -> dict[str, Any]:
    """All that a report says, by its name."""
    return {one.name: getattr(report, one.name) for one in fields(Round)}


def with_latecomer(row: RoundRow, answer: Answered) -> RoundRow:
    """A round that was merged, and an answer that came after that."""
    late = row.late_devices if answer.device in row.late_devices else (*row.late_devices, answer.device)
    return replace(row, late_devices=late, slowest=slower(row.slowest, answer))


def slower(known: Slowest | None, answer: Answered) -> Slowest | None:
    """Who was slower."""
    if answer.took is None or (known and known.took >= answer.took):
        return known
    pace = answer.seconds_per_step
    return Slowest(answer.device, answer.took, None if pace is None else pace * answer.steps)


def better(best: Best | None, round: int, scores: Round | Evaluated) -> Best | None:
    """The first of the best rounds."""
    measure = judging.judged_by(scores.scores)
    value = scores.scores.get(measure)
    known = best.value if best and best.measure == measure else None
    if value is None or (known is not None and not judging.better(measure, value, known)):
        return best
    return Best(round, measure, value, scores.scores)
