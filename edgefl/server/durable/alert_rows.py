"""Alerts on disk: causes, messages that were not delivered yet, and what devices used to reach."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgefl.base.errors import StoreError
from edgefl.server.decide.accuracy import AccuracyLevels
from edgefl.server.decide.alerts import Alert, AlertState, OutgoingNotice
from edgefl.server.durable.rows import Changes, Row, RowStore

ALERTS, OUTBOX, HEARD, LEVELS = "alerts", "alert_outbox", "alert_heard", "alert_levels"
DEVICES = "devices"


def read(rows: RowStore) -> AlertState:
    """The state that was written last."""
    tables = rows.tables
    try:
        alerts = [_adapter(Alert).validate_python(row) for row in tables.get(ALERTS, {}).values()]
        outgoing = [_adapter(OutgoingNotice).validate_python(row) for row in tables.get(OUTBOX, {}).values()]
        heard = {fleet: frozenset(row[DEVICES]) for fleet, row in tables.get(HEARD, {}).items()}
        levels = {_pair(key): _adapter(AccuracyLevels).validate_python(row) for key, row in _items(tables, LEVELS)}
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{rows.disk.where()}: not the alerts of a server ({error}); restore it from a copy") from None
    return AlertState({one.key: one for one in alerts}, {one.key: one for one in outgoing}, heard, levels)


def changes(before: AlertState, after: AlertState) -> Changes:
    """What has to be written so that `before` on disk becomes `after`."""
    heard = {fleet: devices for fleet, devices in after.heard.items() if before.heard.get(fleet) != devices}
    return {
        ALERTS: _changed(before.alerts, after.alerts, Alert),
        OUTBOX: _changed(before.outbox, after.outbox, OutgoingNotice),
        HEARD: {fleet: {DEVICES: sorted(devices)} for fleet, devices in heard.items()},
        LEVELS: _changed(before.levels, after.levels, AccuracyLevels),
    }


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any], kind: type) -> dict[str, Row | None]:
    if before is after:
        return {}
    rows: dict[str, Row | None] = {_key(key): None for key in before.keys() - after.keys()}
    for key, record in after.items():
        if (old := before.get(key)) is not record and old != record:
            rows[_key(key)] = _adapter(kind).dump_python(record, mode="json")
    return rows


def _key(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else "/".join(key)


def _pair(key: str) -> tuple[str, str]:
    fleet, _, series = key.partition("/")
    return fleet, series


def _items(tables: Mapping[str, Mapping[str, Row]], table: str) -> list[tuple[str, Row]]:
    return list(tables.get(table, {}).items())


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
