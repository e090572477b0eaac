"""Every selection by its name: ours, and what other packages bring through the entry point `edgefl.selections`."""

from collections.abc import Mapping
from typing import Any

from edgefl.learn.registry import Kinds
from edgefl.learn.selection.base import Selection

SELECTIONS = Kinds(
    "edgefl.selections",
    {
        "uniform": "edgefl.learn.selection.uniform:Uniform",
        "fresh": "edgefl.learn.selection.fresh:Fresh",
        "samples": "edgefl.learn.selection.by_samples:BySamples",
        "power_of_choice": "edgefl.learn.selection.power_of_choice:PowerOfChoice",
        "oort": "edgefl.learn.selection.oort:Oort",
        "fastest": "edgefl.learn.selection.fastest:Fastest",
        "deadline": "edgefl.learn.selection.in_time:InTime",
    },
    does=("order",),
)


def selection(table: Mapping[str, Any]) -> Selection:
    """The selection described by a table of a run file."""
    selection: Selection = SELECTIONS.take(table, "selection")
    return selection
