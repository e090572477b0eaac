"""The queue on disk: every run, every schedule, and the requests that were already carried out."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from edgefl.base.errors import StoreError
from edgefl.server.decide.runs import QueuedRun, RunSchedule, ServerState
from edgefl.server.decide.vocabulary import Fact
from edgefl.server.durable.rows import Changes, Row, RowStore

RUNS, SCHEDULES, QUEUE = "runs", "schedules", "queue"
FACTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Fact)}


def read(rows: RowStore, at_once: int) -> ServerState:
    """The state that was written last."""
    queue = rows.tables.get(QUEUE, {}).get(QUEUE, {})
    try:
        return ServerState(
            at_once,
            int(queue.get("next_number", 1)),
            _records(QueuedRun, rows.tables.get(RUNS, {})),
            _records(RunSchedule, rows.tables.get(SCHEDULES, {})),
            dict(queue.get("requests", {})),
        )
    except (ValidationError, ValueError, TypeError) as error:
        raise StoreError(f"{rows.disk.where()}: not the queue of a server ({error}); restore it from a copy") from None


def changes(before: ServerState, after: ServerState) -> Changes:
    """What has to be written so that `before` on disk becomes `after`."""
    queue = {} if _queue(before) == _queue(after) else {QUEUE: _queue(after)}
    return {
        RUNS: _changed(QueuedRun, before.runs, after.runs),
        SCHEDULES: _changed(RunSchedule, before.schedules, after.schedules),
        QUEUE: queue,
    }


def _queue(state: ServerState) -> Row:
    return {"next_number": state.next_number, "requests": dict(state.requests)}


def _changed(kind: type, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Row | None]:
    rows: dict[str, Row | None] = dict.fromkeys(before.keys() - after.keys())
    for name, record in after.items():
        if before.get(name) is not record:
            rows[name] = _adapter(kind).dump_python(record, mode="json")
    return rows


def _records(kind: type, rows: Mapping[str, Row]) -> dict[str, Any]:
    return {name: _adapter(kind).validate_python(row) for name, row in rows.items()}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def fact_row(fact: Fact) -> Row:
    """A fact as JSON has it."""
    return {"kind": type(fact).__name__, **_adapter(FACTS[type(fact).__name__]).dump_python(fact, mode="json")}


def fact_of(row: Row) -> Fact:
    """The fact of such a row."""
    told = dict(row)
    fact: Fact = _adapter(FACTS[told.pop("kind")]).validate_python(told)
    return fact
