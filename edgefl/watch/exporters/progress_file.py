"""Which rounds a tool has been told, in a file beside what it was told: after a restart none is told twice."""

import json
from pathlib import Path

from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically
from edgefl.watch.exporters.scalars import Report

NAME = ".edgefl-exported"


class ProgressFile:
    """The last round of each kind of report, in this folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        try:
            known = parse_json(self.path.read_bytes())
            self.last = {str(kind): int(round) for kind, round in known.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            self.last = {}

    def has(self, fact: Report) -> bool:
        return fact.round <= self.last.get(kind_of(fact), -1)

    def add(self, fact: Report) -> None:
        self.last = {**self.last, kind_of(fact): fact.round}
        write_atomically(self.path, json.dumps(self.last).encode())


def kind_of(fact: Report) -> str:
    return type(fact).__name__.lower()
