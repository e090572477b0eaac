"""What must be true besides (invariants.py) where rounds wait for no device.

counted      no answer is merged that began longer ago than the run file allows, and each weighs what its age leaves
promised     whatever was receipted as accepted is merged in the round in hand then, or in the next if that was closed
undisturbed  whatever went wrong, the model is what the loop makes of the order of answers in the run's facts
"""

from collections.abc import Iterable, Mapping

from coordinator.decide.rounds import Rounds
from coordinator.durable.journal import AnswerFrame
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.sim.loop import opened_update
from edgefl.wire.frames import Unseal
from edgefl.wire.messages import TO_COORDINATOR, Answer, peek

Receipted = tuple[str, int, str, bytes]  # a run, what the answer began with, a device, what the answer is known by


def trains(run: RunFile, round: int) -> bool:
    """Return whether this round of the run waits for no device."""
    return run.buffered and run.purposes.purpose(round) == "train"


def due(rounds: Rounds) -> int:
    """The round that merges an answer at the latest which is receipted now; after the last one there may be none."""
    return rounds.round + (rounds.phase in ("merging", "finished"))


def began(kept: AnswerFrame) -> int:
    """With which round's model an answer began, by its own word."""
    answer, _ = peek(TO_COORDINATOR, bytes(kept.frame))
    return answer.round if isinstance(answer, Answer) else -1


def too_old(run: RunFile, round: int, answers: Iterable[AnswerFrame]) -> str:
    """Who began too long ago to be merged in this round."""
    old = sorted(kept.device for kept in answers if round - began(kept) > run.rounds.staleness)
    return ", ".join(old)


def merged_again(
    job: Job, before: RunState, population: int, answers: Mapping[str, AnswerFrame], unseal: Unseal
) -> RunState:
    """The state after a round, from nothing but the answers in the journal."""
    ages = {device: before.round + 1 - began(kept) for device, kept in answers.items()}
    updates = {device: opened_update(job, bytes(kept.frame), unseal) for device, kept in answers.items()}
    judged = jobs.judged(job, before, {device: update for device, update in updates.items() if not ages[device]})
    return [judged, *jobs.onward(job, judged, updates, population=population, ages=ages)][-1]


def lost(
    promises: Mapping[Receipted, int], run: str, round: int, merged: Iterable[Mapping[tuple[int, str], bytes]]
) -> str:
    """Whose receipted answer should have been merged by now, and was not."""
    counted = {known_as for one in merged for known_as in one.values()}
    forgotten = [
        f"{device}'s to round {of}"
        for (of_run, of, device, known_as), latest in promises.items()
        if of_run == run and latest <= round and known_as not in counted
    ]
    return ", ".join(sorted(forgotten))
