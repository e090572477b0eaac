"""What a comparison leaves behind: results.json, the table, the pictures and the page."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from edgefl.compare.page import page
from edgefl.compare.plots import draw
from edgefl.compare.running import Played
from edgefl.compare.table import as_json, scores, text
from edgefl.compare.variants import Variant
from edgefl.errors import StoreError

RESULTS, TABLE, PAGE = "results.json", "table.md", "index.html"


def write(folder: Path, variants: Sequence[Variant], runs: Sequence[Played], levels: Sequence[float]) -> Path:
    """Write everything into the folder; gives back the page."""
    lines = scores(runs, levels)
    title = variants[0].run.run.name
    files = {v.label: json.dumps(v.run.model_dump(mode="json", exclude_none=True), indent=1) for v in variants}
    command = " ".join(["edgefl", *(shlex.quote(word) for word in sys.argv[1:])])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULTS).write_text(json.dumps({"command": command, **as_json(runs, levels)}), encoding="utf-8")
        (folder / TABLE).write_text(f"{text(lines, levels)}\n", encoding="utf-8")
        pictures = draw(runs, folder, title)
        written = page(title, command, lines=lines, levels=levels, pictures=pictures, runs=files)
        (folder / PAGE).write_text(written, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); choose another with --out") from None
    return folder / PAGE
