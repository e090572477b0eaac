"""The public name of `edgefl.contract`, for algorithms of your own."""

from edgefl.contract import (
    STRICT,
    Algorithm,
    Batched,
    Budget,
    Descending,
    Draft,
    Lasting,
    Noise,
    Pushing,
    Resting,
    Site,
    Stage,
    Summing,
    Task,
    Update,
    rate,
)

__all__ = [
    "STRICT",
    "Algorithm",
    "Batched",
    "Budget",
    "Descending",
    "Draft",
    "Lasting",
    "Noise",
    "Pushing",
    "Resting",
    "Site",
    "Stage",
    "Summing",
    "Task",
    "Update",
    "rate",
]
