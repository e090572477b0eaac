"""What happens to a server's runs, what it does about them, and what it tells of them.

Events are past tense, actions imperative. `wall` is seconds since 1970, `now` is the monotonic clock of this life of
the server. Facts are what readers read: the audit log, the page, webhooks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Wish: TypeAlias = Literal["pause", "resume", "cancel"]
Phase: TypeAlias = Literal["queued", "working", "stopping", "paused", "finished", "failed", "cancelled"]
ENDED: frozenset[str] = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Recurring:
    """The `[schedule]` of a run file, as values."""

    cron: str
    zone: str = ""
    from_last: bool = False
    when: str = ""
    missed: Literal["once", "skip"] = "once"


@dataclass(frozen=True, slots=True)
class Submission:
    """A run file that a person has handed over, and what the queue needs to know of it."""

    name: str
    fleet: str
    text: str  # the run file as it was
    sets: tuple[str, ...] = ()  # keys that go before it: "rounds.cohort=4"
    beside: str = ""  # the folder in which files and modules are found that it names
    folder: str = ""  # where its own folder will be
    priority: int = 0
    keep: int = 30  # finished runs of its schedule that are kept
    recurring: Recurring | None = None


# ---- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restarted:
    """The server starts: no coordinator is at work yet."""

    now: float
    wall: float


@dataclass(frozen=True, slots=True)
class RunSubmitted:
    """A person wants a run; `request` is the same when the same wish is sent again."""

    now: float
    wall: float
    request: str
    by: str
    submission: Submission


@dataclass(frozen=True, slots=True)
class RunWished:
    """A person wants a run, or a schedule, to pause, to go on or to end."""

    now: float
    wall: float
    name: str
    wish: Wish
    by: str


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """A person wants a run sooner or later than others: larger numbers go first."""

    now: float
    wall: float
    name: str
    priority: int
    by: str


@dataclass(frozen=True, slots=True)
class CoordinatorEnded:
    """The process of a run has ended with this exit code; negative: by a signal."""

    now: float
    wall: float
    name: str
    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FolderDeleted:
    """The folder of a finished run is gone."""

    now: float
    wall: float
    name: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """A person wants only this number of finished runs to be kept, of those that belong to no schedule."""

    now: float
    wall: float
    keep: int
    by: str


@dataclass(frozen=True, slots=True)
class Due:
    """When a schedule was due last, and when it is next, by the clock on the wall."""

    last: float
    next: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. `due` is by schedule; `fits` says whether its condition holds, or why it does not."""

    now: float
    wall: float
    due: Mapping[str, Due] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)  # by schedule: why its condition does not hold
    samples: Mapping[str, int] = field(default_factory=dict)  # of each fleet


Event: TypeAlias = (
    Restarted | RunSubmitted | RunWished | PriorityChanged | CoordinatorEnded | FolderDeleted | Pruned | Ticked
)

# ---- actions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartCoordinator:
    """Start the process of this run."""

    name: str


@dataclass(frozen=True, slots=True)
class StopCoordinator:
    """Ask the process of this run to end; it loses nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteFolder:
    """Delete the folder of this finished run."""

    name: str


Action: TypeAlias = StartCoordinator | StopCoordinator | DeleteFolder

# ---- facts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunChanged:
    """A run is in another phase, or waits for another reason. `request` is of a submission that made it."""

    name: str
    fleet: str
    phase: Phase | Literal["deleted"]
    reason: str = ""
    by: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleChanged:
    """What became of a schedule: it was set, it fired, a time of it was skipped, it was paused or removed."""

    name: str
    fleet: str
    what: Literal["set", "fired", "skipped", "paused", "resumed", "removed", "clock"]
    reason: str = ""
    by: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A person wanted what cannot be."""

    name: str
    fleet: str
    reason: str
    by: str
    request: str = ""


Fact: TypeAlias = RunChanged | ScheduleChanged | RequestRefused
