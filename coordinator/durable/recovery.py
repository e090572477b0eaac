"""After a restart: what was promised becomes updates again, and rounds behind the last checkpoint are redone."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from coordinator.decide import modes
from coordinator.decide.rounds import Rounds
from coordinator.decide.vocabulary import AnswerId, Recalled
from coordinator.durable.answer_store import AnswerStore, Load, reader
from coordinator.durable.journal import AnswerFrame, Journal
from coordinator.durable.merge_round import merge_round, take_answers
from edgefl.base.errors import StoreError, WireError
from edgefl.base.report_numbers import LastReports, RoundReport
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import unpack_answer
from edgefl.learn.contract import Update
from edgefl.wire import chunks
from edgefl.wire.frames import Unseal
from edgefl.wire.messages import TO_COORDINATOR, Answer, read

log = logging.getLogger(__name__)

Answers = Mapping[str, AnswerFrame]  # by device


def promised(book: Journal, job: Job, state: Rounds, unseal: Unseal | None = None) -> tuple[Recalled, AnswerStore]:
    """The answers to the round in hand, the late ones that will be merged with them, and those that came after."""
    merging = state.phase == "merging"
    divided = _all if modes.waits_for_nobody(state) else _divided
    answers, late_ones = divided(book.answers(state.round if merging else None), state.round, state.answered)
    later = _divided(book.answers(), state.round + 1, frozenset())[1] if merging else {}
    closed = book.merge(state.round) if merging else None
    kept = [*answers.values(), *late_ones.values(), *later.values()]
    recalled = Recalled(_plain(answers), _plain(late_ones), _plain(later), closed[1] if closed else 0)
    return recalled, _stored(book, job, kept, unseal)


def catch_up(
    book: Journal, job: Job, run_state: RunState, state: Rounds, unseal: Unseal | None = None
) -> tuple[RunState, ...]:
    """The states up to the round in hand: what was merged after the checkpoint that could be read is merged again."""
    passed: list[RunState] = []
    last = state.round if state.phase == "finished" else state.round - 1
    ended = state.phase == "finished"
    while run_state.round < last or (ended and not jobs.finished(job, run_state)):
        round = run_state.round + 1
        known = book.merge(round)
        if known is None and run_state.round >= last:  # what devices said of its model is no longer there
            break
        if known is None:
            raise StoreError(
                f"{book.disk.where()}: no checkpoint after round {run_state.round} can be read, and the answers to"
                f" round {round} are no longer there; restore a checkpoint, or begin anew with --fresh"
            )
        log.info("merging again round=%d devices=%d", round, len(known[0]))
        buffered = modes.waits_for_nobody(replace(state, round=round))
        answers, behind = (_all if buffered else _divided)(book.answers(round), round, known[0])
        store = _stored(book, job, (*answers.values(), *behind.values()), unseal)
        taken = take_answers(store, state.rules.late, round, _plain(answers), _plain(behind))
        judged, merged = merge_round(job, run_state, taken, population=known[1], disk=book.disk)
        passed += [judged, *merged]
        run_state = passed[-1]
    return tuple(passed)


def told_since(book: Journal, saved: tuple[RoundReport, ...]) -> tuple[RoundReport, ...]:
    """What was told of the rounds after those that were saved last."""
    told = [fact for fact in book.story() if isinstance(fact, RoundReport)]
    known = LastReports().add(*saved)
    last = max((at for at, fact in enumerate(told) if known.has(fact)), default=-1)
    return tuple(told[last + 1 :])


def free_rounds(book: Journal, job: Job, run_state: RunState) -> Iterator[RunState]:
    """Return the rounds that need no device, behind what was the last round until the run was extended."""
    closed = next((known for round in range(run_state.round, 0, -1) if (known := book.merge(round))), None)
    if closed and not jobs.finished(job, run_state) and jobs.plan(job, run_state) is None:
        yield from jobs.onward(job, run_state, {}, population=closed[1])


def untold(book: Journal, state: Rounds, reports: tuple[RoundReport, ...]) -> tuple[RoundReport, ...]:
    """What to tell of the rounds that were saved last: those of a run that was extended are in its story already."""
    known = LastReports().add(*(book.story() if state.phase == "merging" else ()))
    return tuple(report for report in reports if not known.has(report))


def _divided(answers: Iterable[AnswerFrame], round: int, counted: frozenset[str]) -> tuple[Answers, Answers]:
    """Those that count in this round, and those that came late; what an abandoned attempt left is neither."""
    updates, late_ones = {}, {}
    for kept in answers:
        if kept.round < round:
            late_ones[kept.device] = kept
        elif kept.device in counted:
            updates[kept.device] = kept
    return updates, late_ones


def _all(answers: Iterable[AnswerFrame], round: int, counted: frozenset[str]) -> tuple[Answers, Answers]:  # noqa: ARG001
    """All of them, whichever round they began with: in buffered rounds nothing is late and kept."""
    return {kept.device: kept for kept in answers if kept.device in counted}, {}


def _plain(answers: Answers) -> dict[str, AnswerId]:
    return {device: AnswerId(kept.round, kept.digest) for device, kept in answers.items()}


def _stored(book: Journal, job: Job, answers: Iterable[AnswerFrame], unseal: Unseal | None) -> AnswerStore:
    store = AnswerStore()
    for kept in answers:
        store.put(kept.digest, *_reread(book, job, kept, unseal))
    return store


def _reread(book: Journal, job: Job, kept: AnswerFrame, unseal: Unseal | None) -> tuple[Update, Load]:
    place = kept.again or (lambda: memoryview(kept.frame))
    if chunks.digest(place()) != kept.digest:  # the journal was opened without reading it
        raise StoreError(
            f"{book.disk.where()}: the answer of device '{kept.device}' to round {kept.round} is damaged; restore the"
            " journal from a copy, or begin anew with --fresh"
        )
    try:
        answer, opened = read(TO_COORDINATOR, place(), job.run.wire.limit_mb << 20, unseal)
    except WireError as error:
        if error.code not in ("update.seal", "wire.sealed"):
            raise
        raise StoreError(
            f"journal: the answer of device '{kept.device}', round {kept.round} was sealed for another key:"
            " restore the coordinator's key (broker.identity), or begin anew with --fresh"
        ) from None
    if not isinstance(answer, Answer):  # the journal holds nothing else
        raise StoreError(f"journal: the frame of device '{kept.device}', round {kept.round} is no answer")
    update = unpack_answer(answer, opened.body, job.sent, job.up)
    return update, reader(job, answer, place, unseal)
