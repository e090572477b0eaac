"""The run as a whole, fact by fact: what it is, whether it goes on, and why not."""

from typing import TypeAlias

from edgefl.base import events
from edgefl.watch.overview.rows import Change, RunRow
from edgefl.watch.overview.sentences import cut

CHANGES = 100  # of the run file are kept

AboutRun: TypeAlias = (
    events.Started
    | events.Evaluating
    | events.Inherited
    | events.Resumed
    | events.Changed
    | events.Connected
    | events.Disconnected
    | events.Paused
    | events.Waiting
    | events.Interrupted
    | events.Done
)


def fold(run: RunRow, fact: AboutRun) -> None:  # noqa: C901  one fact, one case
    """The run after this fact."""
    match fact:
        case events.Started():
            run.name, run.run_id, run.algorithm = fact.run, fact.run_id, fact.algorithm
            run.broker, run.key, run.rounds = fact.broker, fact.key, fact.rounds
            run.deadline = fact.deadline or None
            run.started_at = fact.at if run.started_at is None else run.started_at
            _go_on(run)
        case events.Resumed(round=round):
            run.restarts, run.rounds_done = run.restarts + 1, max(run.rounds_done, round - 1)
            _go_on(run)
        case events.Evaluating():
            run.evaluating = fact
        case events.Inherited():
            run.inherited = fact
        case events.Changed():
            _change(run, fact)
        case events.Connected():
            run.broker_away = ""
        case events.Disconnected(reason=reason):
            run.broker_away = cut(reason) or "gone"
        case events.Paused(reason=reason):
            run.paused = cut(reason)
        case events.Waiting(reason=reason, lasts=lasts):
            if cut(reason) != run.waiting:
                run.waiting, run.waiting_since = cut(reason), fact.at
            run.waiting_lasts, run.paused = lasts, run.paused if reason.startswith("paused") else ""
            run.state = "waiting" if run.state == "interrupted" else run.state
        case events.Interrupted():
            run.state, run.paused, run.broker_away, run.waiting_lasts = "interrupted", "", "", False
        case events.Done():
            _end(run, fact)


def _go_on(run: RunRow) -> None:
    """Another life of the coordinator; a run that had ended is extended."""
    run.done, run.ended_at, run.paused, run.broker_away = None, None, "", ""
    run.state = "waiting" if run.state in ("finished", "interrupted") else run.state


def _change(run: RunRow, fact: events.Changed) -> None:
    """A key of the run file, some of which the overview itself shows."""
    run.changes = [*run.changes, Change(fact.key, fact.before, fact.now, fact.at)][-CHANGES:]
    if fact.key == "run.rounds" and isinstance(fact.now, int):
        run.rounds = fact.now
    elif fact.key == "rounds.deadline" and isinstance(fact.now, int | float):
        run.deadline = float(fact.now)


def _end(run: RunRow, fact: events.Done) -> None:
    run.done, run.ended_at, run.state = fact, fact.at, "finished"
    run.name, run.algorithm = fact.run, fact.algorithm
    model = f", model {fact.model_sha256[:16]}" if fact.model_sha256 else ""
    run.waiting, run.waiting_since = f"finished after {fact.rounds} rounds{model}", fact.at
    run.waiting_lasts, run.paused = False, ""
