"""After a restart: what was promised becomes updates again, and rounds behind a damaged checkpoint are redone."""

import logging
from collections.abc import Iterable, Mapping

from coordinator import journal, staleness
from coordinator.journal import Journal
from coordinator.rounds import Rounds
from coordinator.staleness import Latecomer
from coordinator.vocabulary import Kept, Recalled
from edgefl.contract import Update
from edgefl.errors import StoreError, WireError
from edgefl.protocol.frames import Unseal
from edgefl.protocol.messages import TO_COORDINATOR, Answer, read
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.run.work import unpack_answer

log = logging.getLogger(__name__)

Answers = Mapping[str, journal.Kept]  # by device


def promised(
    book: Journal, job: Job, state: Rounds, unseal: Unseal | None = None
) -> tuple[Recalled, dict[bytes, Update]]:
    """The answers to the round in hand, the late ones that will be merged with them, and those that came after."""
    merging = state.phase == "merging"
    answers, late_ones = _divided(book.answers(state.round if merging else None), state.round, state.answered)
    later = _divided(book.answers(), state.round + 1, frozenset())[1] if merging else {}
    closed = book.merge(state.round) if merging else None
    kept = [*answers.values(), *late_ones.values(), *later.values()]
    recalled = Recalled(_plain(answers), _plain(late_ones), _plain(later), closed[1] if closed else 0)
    return recalled, {one.digest: _reread(job, one, unseal) for one in kept}


def catch_up(book: Journal, job: Job, run_state: RunState, state: Rounds, unseal: Unseal | None = None) -> RunState:
    """The state up to the round in hand: what was merged after the checkpoint that could be read is merged again."""
    last = state.round if state.phase == "finished" else state.round - 1
    while run_state.round < last:
        round = run_state.round + 1
        known = book.merge(round)
        if known is None:
            raise StoreError(
                f"{book.disk.where()}: no checkpoint after round {run_state.round} can be read, and the answers to"
                f" round {round} are no longer there; restore a checkpoint, or begin anew with --fresh"
            )
        log.warning("merging again round=%d devices=%d", round, len(known[0]))
        answers, behind = _divided(book.answers(round), round, known[0])
        arrived = {device: _reread(job, kept, unseal) for device, kept in answers.items()}
        latecomers = {device: Latecomer(kept.round, _reread(job, kept, unseal)) for device, kept in behind.items()}
        updates, late_ones = staleness.fold(state.rules.late, round, arrived, latecomers)
        *_, run_state = jobs.onward(job, run_state, updates, population=known[1], late=late_ones)
    return run_state


def _divided(answers: Iterable[journal.Kept], round: int, counted: frozenset[str]) -> tuple[Answers, Answers]:
    """Those that count in this round, and those that came late; what an abandoned attempt left is neither."""
    updates, late_ones = {}, {}
    for kept in answers:
        if kept.round < round:
            late_ones[kept.device] = kept
        elif kept.device in counted:
            updates[kept.device] = kept
    return updates, late_ones


def _plain(answers: Answers) -> dict[str, Kept]:
    return {device: Kept(kept.round, kept.digest) for device, kept in answers.items()}


def _reread(job: Job, kept: journal.Kept, unseal: Unseal | None) -> Update:
    try:
        answer, opened = read(TO_COORDINATOR, kept.frame, job.run.wire.limit_mb << 20, unseal)
    except WireError as error:
        if error.code not in ("update.seal", "wire.sealed"):
            raise
        raise StoreError(
            f"journal: the answer of device '{kept.device}', round {kept.round} was sealed for another key:"
            " restore the coordinator's key (broker.identity), or begin anew with --fresh"
        ) from None
    if not isinstance(answer, Answer):  # the journal holds nothing else
        raise StoreError(f"journal: the frame of device '{kept.device}', round {kept.round} is no answer")
    return unpack_answer(answer, opened.body, job.model.layout.size, job.up)
