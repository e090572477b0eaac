"""The run file that was in force, as the journal of a run has it: data from outside, as the run's folder may be."""

from typing import Any

from coordinator.durable.journal import Journal
from edgefl.base.errors import StoreError
from edgefl.system.json_text import parse_json

# What readers of a journal look up in it, and of which type that is.
LOOKED_UP = (
    ("run", "name", str),
    ("run", "rounds", int),
    ("rounds", "deadline", int | float),
    ("broker", "url", str),
    ("algorithm", "name", str),
)


def run_table(book: Journal) -> dict[str, Any] | None:
    """Return the tables of the run file, perhaps as an earlier version wrote them; None, if there is none yet.

    Raise `StoreError` if they are not those of a run file.
    """
    text = book.get("run")
    if text is None:
        return None
    try:
        table: dict[str, Any] = parse_json(text)
        wrong = [f"{section}.{key}" for section, key, kind in LOOKED_UP if not isinstance(table[section][key], kind)]
    except (ValueError, KeyError, TypeError, IndexError):
        wrong = ["run"]
    if wrong:
        raise StoreError(f"{book.disk.where()}: its journal holds no run file ({wrong[0]}); restore it from a copy")
    return table
