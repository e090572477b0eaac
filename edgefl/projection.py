"""The public name of `edgefl.training.projection`, and of the products it is made of."""

from edgefl.products import SHORT, Rows, inner, recover
from edgefl.training.projection import (
    ACCEPTED,
    ENUMERATED,
    EXACT,
    NEGLIGIBLE,
    RIDGE,
    Dual,
    Granularity,
    Projection,
    always_solved,
    least_distance,
    nnls,
    parts,
    project,
    solve_dual,
)

__all__ = [
    "ACCEPTED",
    "ENUMERATED",
    "EXACT",
    "NEGLIGIBLE",
    "RIDGE",
    "SHORT",
    "Dual",
    "Granularity",
    "Projection",
    "Rows",
    "always_solved",
    "inner",
    "least_distance",
    "nnls",
    "parts",
    "project",
    "recover",
    "solve_dual",
]
