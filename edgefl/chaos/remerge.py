"""A round merged once more, from nothing but the answers in the journal: told apart from how a coordinator does it."""

from collections.abc import Iterable, Mapping

from coordinator import staleness
from coordinator.journal import Kept
from coordinator.staleness import Latecomer, Policy
from edgefl.contract import Update
from edgefl.protocol.frames import Unseal
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.simulation.loop import opened_update


def divided(answers: Iterable[Kept], round: int, counted: frozenset[str]) -> tuple[dict[str, Kept], dict[str, Kept]]:
    """By device: the answers that count in this round, and the late ones that are merged with them."""
    fresh = {kept.device: kept for kept in answers if kept.round == round and kept.device in counted}
    return fresh, {kept.device: kept for kept in answers if kept.round < round}


def together(answers: Iterable[Kept], _round: int, counted: frozenset[str]) -> tuple[dict[str, Kept], dict[str, Kept]]:
    """The same where rounds wait for nobody: whenever they began, none of them is late."""
    return {kept.device: kept for kept in answers if kept.device in counted}, {}


def merged_again(  # noqa: PLR0917 - all that a merge depends on
    job: Job,
    before: RunState,
    policy: Policy,
    population: int,
    fresh: Mapping[str, Kept],
    behind: Mapping[str, Kept],
    unseal: Unseal,
) -> RunState:
    """The state after the round, and after those behind it that need no device."""
    latecomers = {device: Latecomer(kept.round, _update(job, kept, unseal)) for device, kept in behind.items()}
    arrived = {device: _update(job, kept, unseal) for device, kept in fresh.items()}
    updates, late_ones = staleness.fold(policy, before.round + 1, arrived, latecomers)
    judged = jobs.judged(job, before, arrived)
    return [judged, *jobs.onward(job, judged, updates, population=population, late=late_ones)][-1]


def _update(job: Job, kept: Kept, unseal: Unseal) -> Update:
    return opened_update(job, bytes(kept.frame), unseal)
