"""Where a coordinator begins: with what its run file says, or with what its journal knows."""

import uuid

from coordinator.decide.rounds import Rounds, Rules
from coordinator.decide.state import State
from coordinator.decide.story_limit import HOUR, StoryLimit, recalled
from coordinator.decide.strikes import Conduct
from coordinator.durable.journal import Journal
from edgefl.job.config.schema import RunFile
from edgefl.learn.contract import traits_of


def rules(run: RunFile) -> Rules:
    """The run file's word on rounds, as the machine takes it."""
    return Rules(
        rounds=run.run.rounds,
        seed=run.run.seed,
        cohort=run.cohort,
        quorum=run.quorum,
        deadline=run.rounds.deadline,
        over_select=run.rounds.over_select,
        start_with=run.start_with,
        late=run.rounds.late,
        cohort_rounds=traits_of(run.make_algorithm()).cohort_rounds,
        selection=run.selection,
        evaluates=run.schedule.evaluates,
        describes=run.schedule.describes,
        buffered=run.buffered,
        staleness=run.rounds.staleness,
    )


def begin(run: RunFile, book: Journal | None, now: float, wall: float) -> State:
    """Where the run stood, or its beginning; it is `now` on the clock of events, and `wall` on the wall."""
    house = rules(run)
    restored = book.rounds(house) if book else None
    return State(
        restored or Rounds(house, round=house.schedule.first),
        Conduct(run.guards.strikes, run.guards.quarantine_seconds),
        where=run.where,
        looks=run.run.forgetting,
        resumed=restored is not None,
        fleet=book.devices() if book else frozenset(),
        story=recalled(book.story(since=wall - HOUR), now, wall) if book else StoryLimit(),
        began=now,
        since=now,
    )


def identify(run: RunFile, book: Journal | None, run_id: str | None) -> str:
    """The id of this run, which its journal keeps through every restart: a name may be used again, an id never is."""
    known = book.get("run_id") if book else None
    run_id = known or run_id or uuid.uuid4().hex[:12]
    if book and not known:
        book.set(run_id=run_id, run=run.model_dump_json())
    return run_id
