"""What an overview is made of, as page, status and report read it. In JSON each is one object with these very fields;
one with `scores` has the common figures of them as keys of their own as well (`accuracy`, `loss`, ...).

Times are seconds since 1970 (virtual seconds in an emulated fleet); None is "not known". All text of devices is one
printable line of bounded length, and still theirs: code that makes HTML of it escapes it.

`sequence` is the number of the fact by which a row last changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from edgefl.base.device_labels import Properties
from edgefl.base.events import Done, Evaluated, Evaluating, Inherited, Round
from edgefl.base.schedule import Purpose
from edgefl.base.scores import Scored, Scores

FORMAT = "edgefl overview"
VERSION = 2  # grows when a field changes its meaning or goes; a new field does not change it

RunState: TypeAlias = Literal["starting", "waiting", "running", "merging", "finished", "interrupted"]
DeviceState: TypeAlias = Literal[
    "idle",
    "asked",
    "training",
    "sending",
    "answered",
    "busy",
    "declined",
    "refused",
    "quarantined",
    "no data",  # it is there, and cannot train: it has no usable data
    "barred",  # it announces itself, and may not take part
    "excluded",  # it is there and is not asked: `rounds.where` does not mean it
    "offline",
]
ABSENT: tuple[DeviceState, ...] = ("offline", "barred")  # the others are there
Kind: TypeAlias = Literal["info", "warning"]


@dataclass(slots=True)
class Change:
    """A key of the run file that has another value since then."""

    key: str
    before: Any
    now: Any
    at: float


@dataclass(slots=True)
class Best(Scored):
    """The best model so far, by what its kind of task is judged by (figures.judged_by). None: it is not evaluated."""

    round: int
    measure: str = "accuracy"
    value: float | None = None  # of the measure
    scores: Scores = field(default_factory=dict)


@dataclass(slots=True)
class RunRow:
    """The run as a whole. Traffic, late and refused are sums over the rounds that are merged, as in metrics.jsonl."""

    name: str = ""
    run_id: str = ""
    algorithm: str = ""
    broker: str = ""
    key: str = ""  # the key that signs its models
    rounds: int = 0  # planned
    rounds_done: int = 0
    deadline: float | None = None  # seconds a round may take
    state: RunState = "starting"
    started_at: float | None = None
    ended_at: float | None = None
    restarts: int = 0
    paused: str = ""  # why nothing goes on; empty: it does
    broker_away: str = ""  # why the broker is not there; empty: it is
    waiting: str = ""  # why the run waits, in one line
    waiting_since: float | None = None
    waiting_lasts: bool = False  # it has been the same for a while: an operator should look
    bytes_up: int = 0
    bytes_down: int = 0
    late: int = 0
    refused: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    best: Best | None = None
    evaluating: Evaluating | None = None
    inherited: Inherited | None = None  # where its first model is from, if it was trained before
    changes: list[Change] = field(default_factory=list)
    done: Done | None = None


@dataclass(slots=True)
class OpenRound:
    """The round in hand: asked, and not merged yet."""

    round: int
    opening: int
    opened_at: float
    purpose: Purpose = "train"
    deadline_at: float | None = None  # when its time is up, where that is known
    extended: int = 0  # how often it got more
    closed_at: float | None = None  # since when it is merged
    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)  # and why
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(slots=True, frozen=True)
class Slowest:
    """Who answered a round last, how long after it was asked, and how much of that it trained."""

    device: str
    took: float
    training: float | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class RoundRow(Round):
    """A round that is merged: its line in metrics.jsonl, and what else happened in it."""

    sequence: int = 0
    asked: int = 0
    abandoned: int = 0  # how often it was given up, and opened again
    extended: int = 0
    missing: tuple[str, ...] = ()  # were asked, and had not answered when it was closed
    late_devices: tuple[str, ...] = ()  # answered it too late
    declined: Mapping[str, str] = field(default_factory=dict)  # and why
    slowest: Slowest | None = None
    median_took: float | None = None  # of the answers that count, and of late ones
    training_seconds: float | None = None  # from the first question to the last answer that was waited for
    merging_seconds: float | None = None  # from there to the report
    evaluated: Evaluated | None = None  # what devices saw of its model; confusions of the newest only, per_device never

    @property
    def opinion(self) -> Round | Evaluated | None:
        """Return the figures of its model: those of the coordinator, else of devices, else none."""
        return self if self.scores else self.evaluated


@dataclass(slots=True)
class DeviceRow:
    """A device of the run."""

    name: str
    sequence: int = 0
    state: DeviceState = "idle"
    why: str = ""  # in its own words, or why it is gone
    since: float = 0.0  # it is in this state
    live: bool = True  # it was heard in this life of the coordinator; if not, others remember it
    last_seen: float | None = None
    joined_at: float | None = None  # for the first time
    joined: int = 0  # how often
    round: int = 0  # the last it was asked for
    steps: int = 0  # of the work it is at
    samples: int = 0
    host: str = ""
    version: str = ""
    back_end: str = ""
    arch: str = ""  # of its machine, as it says, and its memory
    memory_mb: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # that its operator gave it
    took: float | None = None  # its last answer: seconds since it was asked
    seconds_per_step: float | None = None
    bytes_up: int = 0
    answers: int = 0  # that counted
    late: int = 0
    ignored: int = 0
    missed: int = 0  # rounds that were closed without it
    declined: int = 0
    strikes: int = 0  # what it sent that could not be used
    quarantines: int = 0
    evaluated: Mapping[str, Any] | None = None  # its own figures at the last evaluation, where the run tells them
    certificate_ends: float | None = None
    data_trouble: str = ""  # what is wrong with its data, in one line: it has none, or trains on older ones
    data_since: float | None = None  # the data are so since then
    samples_from: float | None = None  # when the older ones were read
    vitals: Mapping[str, Any] | None = None  # what the fact `Vitals` says, and when (`at`)

    @property
    def properties(self) -> Properties:
        """What it says of itself, by the names that `--where` has for it."""
        return Properties(self.arch, self.memory_mb, self.version, self.back_end.partition(" ")[0], self.samples)


@dataclass(slots=True)
class Note:
    """Something worth a look; what happens again is counted, not listed again."""

    text: str
    kind: Kind
    device: str | None
    first_at: float
    at: float
    times: int = 1
    sequence: int = 0


@dataclass(slots=True)
class Snapshot:
    """Everything that is known; or, in what has changed, everything but rows that have not."""

    sequence: int
    at: float
    run: RunRow
    open: OpenRound | None
    rounds: list[RoundRow]
    devices: list[DeviceRow]
    notes: list[Note]
    format: str = FORMAT
    version: int = VERSION
    rounds_from: int = 0  # the first round of which every row is here; of earlier ones some are

    @property
    def opinion(self) -> Round | Evaluated | None:
        """The newest word on how good the model is."""
        return next((row.opinion for row in reversed(self.rounds) if row.opinion is not None), None)
