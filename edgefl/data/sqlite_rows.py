"""Rows of an SQLite file: what a query gives, or all of its only table. Nothing but reading is possible."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from edgefl.data.reading import Reading
from edgefl.data.table import Row, Rows, Table, read
from edgefl.errors import ConfigError

PATIENCE = 10.0  # seconds to wait for a program that writes
ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


def read_sqlite(path: Path, name: str, reading: Reading, *, features: int | None = None) -> Table:
    """The table that the query gives."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
            query = reading.query or f"SELECT * FROM {_only_table(connection, name)}"  # noqa: S608 - a name, in quotes
            connection.set_authorizer(_only_reading)
            cursor = connection.execute(query)
            titles = tuple(str(column[0]) for column in cursor.description or ())
            if not titles:
                raise ConfigError(f"data set '{name}': data.query gives no columns; write SELECT ...")
            rows = Rows(name, titles, len(titles), _numbered(cursor), word="row")
            return read([rows], reading, name, features=features)
    except (sqlite3.Error, sqlite3.Warning) as error:  # Warning: several statements in one
        raise ConfigError(f"data set '{name}': {error}; correct data.query or the file") from None


def _numbered(cursor: sqlite3.Cursor) -> Iterator[Row]:
    yield from enumerate(cursor, start=1)


def _only_table(connection: sqlite3.Connection, name: str) -> str:
    """The file's table, if it has one, in quotes."""
    known = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    tables = [str(row[0]) for row in connection.execute(known)]
    if len(tables) != 1:
        seen = f"the tables {', '.join(tables[:10])}" if tables else "no table"
        raise ConfigError(f"data set '{name}' has {seen}; say what to read: data.query = \"SELECT ...\"")
    return '"' + tables[0].replace('"', '""') + '"'


def _only_reading(action: int, *_about: str | None) -> int:
    """Whether SQLite may do this: a query that attaches, writes or sets anything is refused."""
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY
