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

Written by `make chaos` on {day}: Python {python}, {cores} cores, load {load:.1f}.
Each row was played by a test in `tests/chaos`; a failure prints the seed or the index that plays it again.
"Same model" means the SHA-256 of the plain loop.

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
    full = "1" in (os.environ.get("EDGEFL_CHAOS"), os.environ.get("EDGEFL_SOAK"))
    if ROWS and full and exitstatus == 0:
        day = datetime.now(timezone.utc).date().isoformat()
        head = HEAD.format(day=day, python=platform.python_version(), cores=os.cpu_count(), load=os.getloadavg()[1])
        rows = _known() | {row[0]: f"| {' | '.join(row)} |" for row in ROWS}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(head + "".join(f"{rows[fault]}\n" for fault in sorted(rows)), encoding="utf-8")


def _known() -> dict[str, str]:
    """Rows of faults that were not played this time."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| fault |")]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}
