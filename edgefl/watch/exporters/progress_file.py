"""The last reports that a tool has, in a file beside what it was told: after a restart none is told twice."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Self

from edgefl.base.events import Fact
from edgefl.base.report_numbers import LastReports
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically

NAME = ".edgefl-exported"


class ProgressFile(LastReports):
    """The last reports in this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / NAME
        with suppress(OSError, ValueError, AttributeError, TypeError):
            self.update({str(kind): int(round) for kind, round in parse_json(self.path.read_bytes()).items()})

    def add(self, *facts: Fact) -> Self:
        super().add(*facts)
        write_atomically(self.path, json.dumps(self).encode())
        return self
