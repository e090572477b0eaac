"""Rows of an SQLite file: what a query gives, or all of its only table. Nothing but reading is possible.

A file holds programs too: a view is the query of its author, and may have neither an end nor small cells, and
so may a column that a table computes. Both are read only where `data.query` asks for them. Cells are bounded, and so is
the work between two rows; it is looked at between instructions of SQLite's machine, each of which may take seconds.
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

from edgefl.base.errors import ConfigError
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.table import Row, Rows, Table, read

PATIENCE = 10.0  # seconds to wait for a program that writes
LARGEST = 1_000_000  # bytes of a cell or a row
STEPS = 300_000_000  # instructions of SQLite's machine: some seconds of a server, a minute of a small device
STEPS_OF_A_ROW = 10_000  # that each row which came adds to these
STRIDE = 1_000_000  # instructions from one look at the work to the next
LONGEST = 3600.0  # seconds for one table
COMPUTED = {2, 3}  # what `PRAGMA table_xinfo` says of such a column: when it is read, or when its row was written
ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


def read_sqlite(path: Path, name: str, reading: Reading, *, features: int | None = None) -> Table:
    """The table that the query gives."""
    work = _Work()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
            if sys.version_info >= (3, 11):  # before, Python cannot set it
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
            connection.set_progress_handler(work.goes_too_far, STRIDE)
            query = reading.query or f"SELECT * FROM {_only_table(connection, name)}"  # noqa: S608 - a name, in quotes
            connection.set_authorizer(_only_reading if reading.query else _only_columns)
            cursor = connection.execute(query)
            titles = tuple(str(column[0]) for column in cursor.description or ())
            if not titles:
                told = "data.query gives no columns; write SELECT ..."
                raise ConfigError(f"data set '{name}': {told}", told=told)
            rows = Rows(name, titles, len(titles), work.numbered(cursor), word="row")
            return read([rows], reading, name, features=features)
    except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:  # Warning: several statements in one
        if work.refused:
            raise ConfigError(
                f"data set '{name}': the query takes too long: {work.refused}; read a table instead of a view, or write"
                " a simpler data.query",
                told="the query takes too long; read a table instead of a view, or write a simpler data.query",
            ) from None
        raise ConfigError(
            f"data set '{name}': {error or 'no memory'}; correct data.query or the file",
            told=f"SQLite ended with a {type(error).__name__}; correct data.query or the file",
        ) from None


class _Work:
    """How much SQLite has done for the rows that it gave."""

    def __init__(self) -> None:
        self.steps, self.rows, self.end, self.refused = 0, 0, monotonic() + LONGEST, ""

    def goes_too_far(self) -> bool:
        """Return whether SQLite should give up; it asks after each stride."""
        self.steps += STRIDE
        if self.steps > STEPS + STEPS_OF_A_ROW * self.rows:
            self.refused = f"more than {STEPS // 1_000_000} million steps"
        elif monotonic() > self.end:
            self.refused = f"more than {LONGEST:.0f} s"
        return bool(self.refused)

    def numbered(self, cursor: sqlite3.Cursor) -> Iterator[Row]:
        """Yield each row with its number from 1."""
        for row in cursor:
            self.rows += 1
            yield self.rows, row
            if monotonic() > self.end:
                self.refused = f"more than {LONGEST:.0f} s"
                raise sqlite3.OperationalError(self.refused)


def _only_table(connection: sqlite3.Connection, name: str) -> str:
    """The file's table, if it has one, in quotes."""
    known = "SELECT name, type = 'view' OR sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master"
    where = "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    entries = [(str(row[0]), bool(row[1])) for row in connection.execute(f"{known} {where}")]
    tables = [table for table, by_code in entries if not by_code]
    if len(tables) != 1:
        kind, names = ("tables", tables) if tables else ("views", [view for view, _ in entries])
        seen = f"the {kind} {', '.join(names[:10])}" if names else "no table"
        raise ConfigError(
            f"data set '{name}' has {seen}; say what to read: data.query = \"SELECT ...\"",
            told=f"it has {len(tables)} tables; say what to read in data.query",
        )
    quoted = '"' + tables[0].replace('"', '""') + '"'
    about = connection.execute(f"PRAGMA table_xinfo({quoted})")
    if computed := [str(column[1]) for column in about if column[6] in COMPUTED]:
        raise ConfigError(
            f"data set '{name}': its table computes the columns {', '.join(computed[:10])}; say what to read:"
            ' data.query = "SELECT ..."',
            told="its table computes columns; say what to read in data.query",
        )
    return quoted


def _only_reading(action: int, *_about: str | None) -> int:
    """Whether SQLite may do this: a query that attaches, writes or sets anything is refused."""
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def _only_columns(action: int, *_about: str | None) -> int:
    """Return whether SQLite may do this without a query of the operator: read columns as they are."""
    return sqlite3.SQLITE_OK if action in {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ} else sqlite3.SQLITE_DENY
