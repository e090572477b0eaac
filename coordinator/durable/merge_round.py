"""Merging one round: when its last answer has come, and once more from the journal after a restart.

Both do the same in the same order, so both give the same model. First the devices' evaluation of the model they
received is added up, because it may end the run; then the answers are put where the job's stages want them; then the
round is merged, and with it each round behind it that needs no device.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.decide.vocabulary import AnswerId
from coordinator.durable import staleness
from coordinator.durable.answer_store import AnswerStore, rows_for
from coordinator.durable.staleness import Latecomer, Policy
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.contract import Update
from edgefl.system.disk import Disk


@dataclass(frozen=True, slots=True)
class RoundAnswers:
    """The updates that one round merges, by device."""

    arrived: Mapping[str, Update]  # the answers that closed the round
    updates: Mapping[str, Update]  # the same, and late ones that are merged like them
    late: Mapping[str, Update] = field(default_factory=dict)  # late ones that are only shown to the stages
    ages: Mapping[str, int] = field(default_factory=dict)  # how many rounds before this one each answer began


def take_answers(
    store: AnswerStore, policy: Policy, round: int, answers: Mapping[str, AnswerId], late: Mapping[str, AnswerId]
) -> RoundAnswers:
    """Remove the answers of this round from the store and return them, late ones treated by the policy."""
    arrived = {device: store.take(kept.digest) for device, kept in answers.items()}
    behind = {device: Latecomer(kept.round, store.take(kept.digest)) for device, kept in late.items()}
    updates, shown = staleness.fold(policy, round, arrived, behind)
    return RoundAnswers(arrived, updates, shown, {device: round - kept.round for device, kept in answers.items()})


def merge_round(
    job: Job, run_state: RunState, answers: RoundAnswers, *, population: int, disk: Disk | None
) -> tuple[RunState, Iterator[RunState]]:
    """Return the state with the devices' evaluation of its model, and the states behind it, merged one at each step.

    There is none behind it if the run ends with that evaluation. Raise `StoreError` if the disk has no room for the
    answers; nothing is merged then, and the same call may be made again.
    """
    fresh = {device: update for device, update in answers.arrived.items() if not answers.ages.get(device)}
    judged = jobs.judged(job, run_state, fresh)
    rows, late = (rows_for(job, each, disk) for each in (answers.updates, answers.late))
    return judged, jobs.onward(job, judged, rows, population=population, late=late, ages=answers.ages)
