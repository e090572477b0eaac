"""After a restart: what was promised becomes updates again, and rounds behind a damaged checkpoint are redone."""

import logging
from collections.abc import Iterable
from time import monotonic

from coordinator import late
from coordinator.journal import Journal, Kept
from coordinator.late import Latecomer
from coordinator.merging import Merging
from coordinator.rounds import Rounds
from edgefl.algorithms.base import Update
from edgefl.errors import StoreError
from edgefl.job import Course, Job
from edgefl.protocol.messages import TO_COORDINATOR, Answer, read
from edgefl.work import unpack_answer

log = logging.getLogger(__name__)

Promised = tuple[dict[str, Update], dict[str, Latecomer]]


def in_hand(book: Journal, job: Job, state: Rounds) -> Promised:
    """The answers to the round in hand, and the late ones that will be merged with them."""
    merged = state.round if state.phase == "merging" else None
    return _divided(job, book.answers(merged), state.round, state.answered)


def waiting(book: Journal, job: Job, state: Rounds) -> dict[str, Latecomer]:
    """The late answers that came after the round in hand was closed."""
    return _divided(job, book.answers(), state.round + 1, frozenset())[1]


def catch_up(book: Journal, job: Job, course: Course, state: Rounds) -> Course:
    """The course up to the round in hand: what was merged after the checkpoint that could be read is merged again."""
    last = state.round if state.phase == "finished" else state.round - 1
    while course.round < last:
        round = course.round + 1
        known = book.merge(round)
        if known is None:
            raise StoreError(
                f"{book.disk.where()}: no checkpoint after round {course.round} can be read, and the answers to round"
                f" {round} are no longer there; restore a checkpoint, or begin anew with --fresh"
            )
        log.warning("merging again round=%d devices=%d", round, len(known[0]))
        updates, late_ones = late.fold(state.rules.late, round, *_divided(job, book.answers(round), round, known[0]))
        course = Merging(job, course, updates, late_ones, known[1], (0, 0), (0, 0), monotonic(), 0.0).merge().course
    return course


def _divided(job: Job, answers: Iterable[Kept], round: int, counted: frozenset[str]) -> Promised:
    """Those that count in this round, and those that came late; what an abandoned attempt left is neither."""
    updates, late_ones = {}, {}
    for kept in answers:
        if kept.round < round:
            late_ones[kept.device] = Latecomer(kept.round, _reread(job, kept))
        elif kept.device in counted:
            updates[kept.device] = _reread(job, kept)
    return updates, late_ones


def _reread(job: Job, kept: Kept) -> Update:
    said, opened = read(TO_COORDINATOR, kept.frame, job.run.wire.limit_mb << 20)
    if not isinstance(said, Answer):  # the journal holds nothing else
        raise StoreError(f"journal: the frame of device '{kept.device}', round {kept.round} is no answer")
    return unpack_answer(said, opened.body, job.model.layout.size, job.up)
