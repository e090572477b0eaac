"""Rows by table and key, in a record log: the last one written counts.

    state-000003.log    all rows as they were when the file was begun, then every change since

A change is on the disk when `write` returns, all of its rows or none. When a file has grown to several times what it
holds, the next one begins with all rows, and then the old one goes: a kill in between leaves both; the newer counts.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from edgefl.base.errors import StoreError
from edgefl.system.disk import Disk
from edgefl.system.record_log import Record, RecordLog

log = logging.getLogger(__name__)

FILES = "state-*.log"
VERSION = 1
SMALL = 256 << 10  # bytes of a file that is not worth beginning anew
GROWN = 4  # times what it held at its beginning

Row: TypeAlias = dict[str, Any]  # what JSON can say
Changes: TypeAlias = Mapping[str, Mapping[str, Row | None]]  # by table and key; None: the row is gone


class RowStore:
    """The tables of one server; read once, at its start."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.tables: dict[str, dict[str, Row]] = {}
        names = disk.names(FILES)
        self._number = int("".join(filter(str.isdigit, names[-1]))) if names else 0
        self._log: RecordLog | None = RecordLog(disk, names[-1]) if names else None
        if self._log is not None:
            for placed in self._log.read():
                self._take(placed.note)
            self._log.recover()
        self._begun = self._log.end if self._log is not None else 0
        for name in names[:-1]:
            disk.remove(name)

    def write(self, changes: Changes) -> None:
        """After this returns, the changes survive a power cut."""
        if not any(changes.values()):
            return
        note = {"changes": {table: dict(rows) for table, rows in changes.items()}}
        if self._log is None or self._log.end > max(SMALL, GROWN * self._begun):
            self._begin(changes)
        else:
            self._log.append(Record(note))
            self._take(note)

    def _begin(self, changes: Changes) -> None:
        """Begin the next file with all rows; the old one is no longer needed when it is there."""
        fresh = RecordLog(self.disk, f"state-{self._number + 1:06}.log")
        tables = {table: dict(rows) for table, rows in self.tables.items()}
        _apply(tables, changes)
        fresh.append(Record({"version": VERSION, "changes": tables}))
        old, self._log, self.tables = self._log, fresh, tables
        self._number += 1
        self._begun = fresh.end
        if old is not None:
            self.disk.remove(old.name)

    def _take(self, note: Row) -> None:
        if note.get("version", VERSION) != VERSION:
            raise StoreError(f"{self.disk.where()}: written by a later version of edgefl; go on with that one")
        _apply(self.tables, note.get("changes", {}))


def _apply(tables: dict[str, dict[str, Row]], changes: Changes) -> None:
    for table, rows in changes.items():
        held = tables.setdefault(table, {})
        for key, row in rows.items():
            if row is None:
                held.pop(key, None)
            else:
                held[key] = row
