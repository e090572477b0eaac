"""Every selection by its name: ours, and what other packages bring through the entry point `edgefl.selections`."""

from collections.abc import Mapping
from typing import Any

from edgefl.registry import Kinds
from edgefl.selection.base import Selection

SELECTIONS = Kinds(
    "edgefl.selections",
    {
        "uniform": "edgefl.selection.uniform:Uniform",
        "fresh": "edgefl.selection.fresh:Fresh",
        "samples": "edgefl.selection.by_samples:BySamples",
        "power_of_choice": "edgefl.selection.power_of_choice:PowerOfChoice",
        "oort": "edgefl.selection.oort:Oort",
        "fastest": "edgefl.selection.fastest:Fastest",
        "deadline": "edgefl.selection.in_time:InTime",
    },
)


def selection(table: Mapping[str, Any]) -> Selection:
    """The selection described by a table of a run file."""
    selection: Selection = SELECTIONS.take(table, "selection")
    return selection
