"""What a comparison leaves behind: results.json, the table, the pictures and the page."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from edgefl.comparison.outcomes import Failed, Outcome, Played
from edgefl.comparison.page import page
from edgefl.comparison.plots import draw
from edgefl.comparison.table import as_json, scores, text
from edgefl.comparison.variants import Variant
from edgefl.errors import StoreError
from edgefl.system.store import write_atomically

RESULTS, TABLE, PAGE = "results.json", "table.md", "index.html"


def write(folder: Path, variants: Sequence[Variant], runs: Sequence[Outcome], levels: Sequence[float]) -> Path:
    """Write everything into the folder; gives back the page."""
    lines = scores(runs, levels)
    title = variants[0].run.run.name
    files = {v.label: json.dumps(v.run.model_dump(mode="json", exclude_none=True), indent=1) for v in variants}
    command = " ".join(["edgefl", *(shlex.quote(word) for word in sys.argv[1:])])
    whole = [run for run in runs if isinstance(run, Played)]
    table = "\n".join([text(lines, levels), *(f"\n{reason(run)}" for run in runs if isinstance(run, Failed))])
    results = json.dumps({"command": command, **as_json(runs, levels)})
    write_atomically(folder / RESULTS, results.encode(), private=False)
    write_atomically(folder / TABLE, f"{table}\n".encode(), private=False)
    try:
        pictures = draw(whole, folder, title) if whole else {}
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); choose another with --out") from None
    written = page(title, command, lines=lines, levels=levels, pictures=pictures, runs=files)
    write_atomically(folder / PAGE, written.encode(), private=False)
    return folder / PAGE


def reason(run: Failed) -> str:
    """Which run failed, and why."""
    return f"{run.label}, seed {run.seed}: failed: {run.why}"
