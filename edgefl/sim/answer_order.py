"""Where rounds wait for no device: which was asked when, and merged with which. The model follows from this alone.

    virtual(...)    of a fleet that nothing disturbs, in which every mini-batch takes the same time and nothing else any
    recorded(...)   of a run that was, by its facts, whatever went wrong in it

A device begins with the newest model at the moment it is asked. Answers come in the order of virtual times; of those
that come in one moment, the first that was asked is the first. What comes in the same moment as the last answer of a
merge counts in the next one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from edgefl.base.events import Answered, Asked, Closed, Fact
from edgefl.job.run.job import Job
from edgefl.learn.contract import Batched, Budget
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.learn.training.local import steps_asked
from edgefl.sim.stragglers import cut


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """An answer: whose it is, and the round whose model it began with."""

    device: str
    began: int
    steps: int | None = None  # that were made, where that is known; otherwise all that are asked for


@dataclass(frozen=True, slots=True)
class RoundOrder:
    """One round: whom it asked, and what it merged."""

    round: int
    asked: tuple[str, ...]
    turns: tuple[AnswerTurn, ...]

    @property
    def ages(self) -> dict[str, int]:
        """How many rounds ago each answer began."""
        return {turn.device: self.round - turn.began for turn in self.turns}


def recorded(facts: Iterable[Fact]) -> Iterator[RoundOrder]:
    """What a run's story tells of its rounds."""
    asked, turns = dict[str, None](), dict[str, AnswerTurn]()
    for fact in facts:
        match fact:
            case Asked(devices=devices):
                asked |= dict.fromkeys(devices)
            case Answered(device, began, verdict="accepted", steps=steps):
                turns[device] = AnswerTurn(device, began, steps or None)
            case Closed(round, devices):
                yield RoundOrder(round, tuple(asked), tuple(turns[device] for device in devices))
                asked = {}


def virtual(
    job: Job, samples: Mapping[str, int], trains: Mapping[str, int], losses: Mapping[str, float] | None = None
) -> "VirtualOrder":
    """Of the whole fleet from the first round on; a device has `samples`, and trains on that number of them.

    `losses` are what devices told last: the player of a round adds those of its answers before asking for the next.
    """
    known = {name: Candidate(name, samples[name]) for name in sorted(samples)}
    return VirtualOrder(job, known, lambda *of: steps(job, trains, *of), {} if losses is None else losses)


def steps(job: Job, trains: Mapping[str, int], round: int, device: str) -> int:
    """How many mini-batches a task is."""
    training, most = job.algorithm, cut(job, round, device, trains[device])
    if not isinstance(training, Batched):
        return 1
    about = training.batch, training.epochs, training.batches, Budget(batches=most)
    return steps_asked(trains[device], *about, lone=not job.model.layout.buffers)


@dataclass(slots=True)
class VirtualOrder:
    """Round after round, without end."""

    job: Job
    known: dict[str, Candidate]
    duration: Callable[[int, str], int]
    losses: Mapping[str, float] = field(default_factory=dict)
    round: int = 0  # the last one that was given
    now: int = 0
    at_work: dict[str, int] = field(default_factory=dict)  # the round whose model each has
    ends: list[tuple[int, int, str, int]] = field(default_factory=list)  # a heap: when, which in order, who, from what
    number: int = 0  # of those who were asked

    def __iter__(self) -> Iterator[RoundOrder]:
        return self

    def __next__(self) -> RoundOrder:
        """The next round."""
        self.round, run = self.round + 1, self.job.run
        for name, loss in self.losses.items():
            self.known[name] = replace(self.known[name], loss=loss)
        order = drawn(run.make_selection(), self.round, run.run.seed, list(self.known.values()))
        self._forget_before(self.round - run.rounds.staleness)
        turns = list(self._came(lambda: self.ends[0][0] == self.now))
        asked = self._ask(self.round, order, run.cohort, turns)
        while len(turns) < run.quorum:
            turns += self._came(lambda: True, most=1)
            if len(turns) < run.quorum:
                asked += self._ask(self.round, order, run.cohort, turns)
        self.known.update((turn.device, replace(self.known[turn.device], counted=self.round)) for turn in turns)
        return RoundOrder(self.round, tuple(asked), tuple(turns))

    def memory(self) -> dict[str, Any]:
        """Where it stands between two rounds, as JSON has it."""
        known = {name: asdict(one) for name, one in self.known.items()}
        plain = {name: getattr(self, name) for name in ("round", "now", "at_work", "number")}
        return {**plain, "known": known, "ends": [list(end) for end in self.ends]}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Stand there again."""
        for name in ("round", "now", "at_work", "number"):
            setattr(self, name, memory[name])
        self.known.update((name, Candidate(**one)) for name, one in memory["known"].items())
        self.ends = [(when, number, name, began) for when, number, name, began in memory["ends"]]

    def _ask(self, round: int, order: Iterable[str], most: int, turns: list[AnswerTurn]) -> list[str]:
        """Ask devices that are neither at work nor in this round, up to the number that may be at work."""
        counted = {turn.device for turn in turns}
        free = [name for name in order if name not in self.at_work and name not in counted]
        asked = free[: most - len(self.at_work)]
        for name in asked:
            self.at_work[name] = round
            heappush(self.ends, (self.now + self.duration(round, name), self.number, name, round))
            self.number += 1
        return asked

    def _came(self, so: Callable[[], bool], most: int | None = None) -> Iterator[AnswerTurn]:
        """The next answers."""
        while self.ends and most != 0 and so():
            self.now, _, name, began = heappop(self.ends)
            if self.at_work.get(name) == began:  # otherwise it was too old
                del self.at_work[name]
                most = None if most is None else most - 1
                yield AnswerTurn(name, began)

    def _forget_before(self, oldest: int) -> None:
        """What began earlier would be refused: its device is asked anew."""
        self.at_work = {name: began for name, began in self.at_work.items() if began >= oldest}
