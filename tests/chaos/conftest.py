"""The table of figures: every test of this folder may add a row; `make chaos` writes them down."""

import os
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "reliability.md"
ROWS: list[tuple[str, str, str, str]] = []

HEAD = """\
# Reliability, measured

Written by `make chaos` on {day}: Python {python}, {cores} cores, load {load:.1f}. Each row was played by a test in `tests/chaos`;
a failure prints the seed or the index that plays it again. "Same model" means the SHA-256 of the plain loop.

| fault | how it was made | seeds | outcome |
|---|---|---|---|
"""


@pytest.fixture
def figures() -> Callable[..., None]:
    def add(*row: Any) -> None:
        ROWS.append(tuple(str(cell) for cell in row))  # type: ignore[arg-type]  # four cells, all the same
        print(" | ".join(ROWS[-1]))

    return add


def pytest_sessionfinish(exitstatus: int) -> None:
    if ROWS and os.environ.get("EDGEFL_CHAOS") == "1" and exitstatus == 0:
        day = datetime.now(timezone.utc).date().isoformat()
        head = HEAD.format(day=day, python=platform.python_version(), cores=os.cpu_count(), load=os.getloadavg()[1])
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(head + "".join(f"| {' | '.join(row)} |\n" for row in sorted(ROWS)), encoding="utf-8")
