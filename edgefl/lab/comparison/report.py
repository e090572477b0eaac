"""What a comparison leaves behind: results.json, the table, the pictures and the page."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.base.errors import StoreError
from edgefl.lab.comparison.outcomes import FailedRun, Outcome, PlayedRun
from edgefl.lab.comparison.page import page
from edgefl.lab.comparison.plots import draw
from edgefl.lab.comparison.significance import VariantResult, cells
from edgefl.lab.comparison.table import Line, as_json, markdown, notes, scores, text
from edgefl.lab.comparison.variants import Variant
from edgefl.system.store import write_atomically

RESULTS, TABLE, PAGE = "results.json", "table.md", "index.html"


@dataclass(frozen=True, slots=True)
class Choices:
    """How settings were chosen: a table, and the same for machines."""

    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    plain: Sequence[Any] = ()
    cautions: Sequence[str] = ()  # of values at the edge of their grid

    def text(self) -> list[str]:
        return [markdown(self.head, self.rows), *self.cautions] if self.rows else []


NONE = Choices()


def tables(lines: Sequence[Line], levels: Sequence[float], standings: Sequence[VariantResult]) -> str:
    """Every run's numbers and, where there are several seeds, what these say together."""
    several = any(standing.score.seeds + standing.diverged > 1 for standing in standings)
    over_seeds = [markdown(*cells(standings))] if several else []
    return "\n\n".join([text(lines, levels), *over_seeds, *notes(lines)])


def write(
    folder: Path,
    variants: Sequence[Variant],
    runs: Sequence[Outcome],
    levels: Sequence[float],
    *,
    standings: Sequence[VariantResult] = (),
    choices: Choices = NONE,
) -> Path:
    """Write everything into the folder; gives back the page. `choices` say how the settings came about."""
    lines = scores(runs, levels)
    title = variants[0].run.run.name
    files = {v.label: json.dumps(v.run.model_dump(mode="json", exclude_none=True), indent=1) for v in variants}
    command = " ".join(["edgefl", *(shlex.quote(word) for word in sys.argv[1:])])
    whole = [run for run in runs if isinstance(run, PlayedRun)]
    reasons = (reason(run) for run in runs if isinstance(run, FailedRun))
    table = "\n\n".join([*choices.text(), tables(lines, levels, standings), *reasons])
    chosen = {"choices": choices.plain} if choices.plain else {}
    results = json.dumps({"command": command, **chosen, **as_json(runs, levels, standings)})
    write_atomically(folder / RESULTS, results.encode(), private=False)
    write_atomically(folder / TABLE, f"{table}\n".encode(), private=False)
    try:
        pictures = draw(whole, folder, title) if whole else {}
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); choose another with --out") from None
    written = page(
        title,
        command,
        lines=lines,
        levels=levels,
        standings=standings,
        choices=(choices.head, choices.rows, choices.cautions),
        pictures=pictures,
        runs=files,
    )
    write_atomically(folder / PAGE, written.encode(), private=False)
    return folder / PAGE


def reason(run: FailedRun) -> str:
    """Which run failed, and why."""
    return f"{run.label}, seed {run.seed}: failed: {run.why}"
