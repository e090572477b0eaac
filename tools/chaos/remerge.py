"""Merge a round, or a whole run, again from the journal alone, without the coordinator's own code for it."""

from collections.abc import Iterable, Iterator, Mapping

from coordinator.durable import staleness
from coordinator.durable.journal import AnswerFrame, Journal
from coordinator.durable.staleness import Latecomer, Policy
from coordinator.shell.budgets import SHARE
from edgefl.base import events
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.contract import Personal, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.answer_order import RoundOrder, recorded, steps
from edgefl.sim.loop import opened_update, simulate
from edgefl.system.disk import Disk
from edgefl.wire.frames import Unseal


def divided(
    answers: Iterable[AnswerFrame], round: int, counted: frozenset[str]
) -> tuple[dict[str, AnswerFrame], dict[str, AnswerFrame]]:
    """Return by device the answers that count in this round, and the late ones that are merged with them."""
    fresh = {kept.device: kept for kept in answers if kept.round == round and kept.device in counted}
    return fresh, {kept.device: kept for kept in answers if kept.round < round}


def together(
    answers: Iterable[AnswerFrame], _round: int, counted: frozenset[str]
) -> tuple[dict[str, AnswerFrame], dict[str, AnswerFrame]]:
    """Return the same for buffered rounds, in which no answer is late."""
    return {kept.device: kept for kept in answers if kept.device in counted}, {}


def merged_again(  # noqa: PLR0917 - all that a merge depends on
    job: Job,
    before: RunState,
    policy: Policy,
    population: int,
    fresh: Mapping[str, AnswerFrame],
    behind: Mapping[str, AnswerFrame],
    unseal: Unseal,
) -> RunState:
    """Return the state after the round, and after the free rounds that follow it."""
    latecomers = {device: Latecomer(kept.round, _update(job, kept, unseal)) for device, kept in behind.items()}
    arrived = {device: _update(job, kept, unseal) for device, kept in fresh.items()}
    updates, late_ones = staleness.fold(policy, before.round + 1, arrived, latecomers)
    judged = jobs.judged(job, before, arrived)
    return [judged, *jobs.onward(job, judged, updates, population=population, late=late_ones)][-1]


def by_the_record(job: Job, disk: Disk, devices: Mapping[str, Dataset]) -> tuple[RunState, list[events.Evaluated]]:
    """Play the plain loop with the order of answers, and their steps, from a run's facts; return its last state, and
    the evaluations of devices.
    """
    told: list[events.Evaluated] = []

    def keep(fact: events.Fact) -> None:
        if isinstance(fact, events.Evaluated):
            told.append(fact)

    return simulate(job, devices, keep, order={course.round: course for course in courses(disk)}), told


def courses(disk: Disk) -> Iterator[RoundOrder]:
    """Yield for each round the devices that were asked and that answered, from the facts of a run."""
    return recorded(Journal(disk, reading=True).story())


def idle(job: Job, disk: Disk, trains: Mapping[str, int], paces: Mapping[str, float]) -> str:
    """Return the devices whose answer has fewer steps than asked for, though there was time for one more."""
    if isinstance(job.algorithm, Personal):  # it trains two models, and reports the time for steps of one
        return ""
    time = SHARE * job.run.rounds.deadline
    turns = [turn for course in courses(disk) for turn in course.turns if turn.steps]
    lazy = {
        f"{turn.device} in round {turn.began}"
        for turn in turns
        if (turn.steps or 0) < steps(job, trains, turn.began, turn.device)
        and ((turn.steps or 0) + 1) * paces[turn.device] <= time
    }
    return ", ".join(sorted(lazy))


def _update(job: Job, kept: AnswerFrame, unseal: Unseal) -> Update:
    return opened_update(job, bytes(kept.frame), unseal)
