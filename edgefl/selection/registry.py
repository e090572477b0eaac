"""Every selection by its name: ours, and what other packages bring through the entry point `edgefl.selections`."""

from collections.abc import Mapping
from typing import Any

from edgefl.registry import Kinds
from edgefl.selection.base import Selection

SELECTIONS = Kinds(
    "edgefl.selections",
    {"uniform": "edgefl.selection.uniform:Uniform", "fresh": "edgefl.selection.fresh:Fresh"},
)


def selection(table: Mapping[str, Any]) -> Selection:
    """The selection described by a table of a run file."""
    selection: Selection = SELECTIONS.take(table, "selection")
    return selection
