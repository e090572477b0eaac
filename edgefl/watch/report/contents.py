"""What a report is made from: all that is known of a run, gathered by code that can read its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgefl.job.config.listing import Shown
from edgefl.watch.overview.overview import Overview


@dataclass(frozen=True, slots=True)
class PrivacySpent:
    """What the answers of the device that gave most have cost; None: nothing is promised, or it cannot be said."""

    device: str
    updates: int
    epsilon: float | None
    delta: float
    mechanism: str


@dataclass(frozen=True, slots=True)
class Contents:
    """A run at the moment its report is written."""

    overview: Overview
    written_at: float
    folder: str
    file: Sequence[Shown]  # the run file that is in force, and who set what
    seed: int | None
    software: Mapping[str, str] = field(default_factory=dict)  # of the coordinator
    files: Mapping[str, str] = field(default_factory=dict)  # what the run left, by what it is
    private: bool = False  # it promises something
    spent: PrivacySpent | None = None
    unknown: str = ""  # code that the run names, and that is not run for a report
    partitioned: bool = False  # a simulation gives the same model
    finished: bool = True
