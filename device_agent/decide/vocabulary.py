"""What can happen to a device, and what it can be told to do: the words between session.py and its shell."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgefl.base.schedule import Purpose

Verdict: TypeAlias = Literal["accepted", "duplicate", "late", "refused"]


# ── events: they happened ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AgentConnected:
    pass


@dataclass(frozen=True, slots=True)
class AgentDisconnected:
    pass


@dataclass(frozen=True, slots=True)
class Tasked:
    """A coordinator asks for work; this is all that it said, and stays with the task until its receipt."""

    job: str
    run_id: str
    round: int
    model: str
    attempt: str = ""  # another attempt at a round means: what was answered before was dropped
    overtime: bool = False  # an answer is welcome even when the round is over (late = discount or memory)
    counted: int = 0  # the last round this device's answer was merged in: stands in for a receipt that was lost
    previous: str | None = None  # the model one round earlier, for algorithms that look back
    graphs: str | None = None  # the ONNX bundle, where devices train with onnxruntime
    batches: int | None = None  # at most this number of steps
    seconds: float | None = None  # at most so long
    seal: str | None = None  # the key that the answer is sealed for; None: it is sent open
    purpose: Purpose = "train"  # or only to evaluate: such an answer is never merged
    evaluates: int | None = None  # evaluate the model on data set aside, if at least this many samples are there
    held_back: float | None = None  # share of a trial's part that is not trained on

    @property
    def run_key(self) -> str:
        """The name of a job may be used again, this never is."""
        return f"{self.job}.{self.run_id}"

    @property
    def needs(self) -> tuple[tuple[int, str], ...]:
        """What must be at hand, each with the round it is signed for: 0 for the graphs."""
        parts = (self.round, self.model), (self.round - 1, self.previous), (0, self.graphs)
        return tuple((round, id) for round, id in parts if id)

    def same_work(self, other: "Tasked") -> bool:
        """Whether an answer to one is an answer to the other."""
        return _work(self) == _work(other)


def _work(task: Tasked) -> tuple[object, ...]:
    """What an answer depends on, as far as it was said."""
    return task.run_key, task.round, task.model, task.seal, task.purpose


@dataclass(frozen=True, slots=True)
class ModelArrived:
    """All that this task needs is at hand."""

    task: Tasked


@dataclass(frozen=True, slots=True)
class ModelOverdue:
    """Nothing has come of a model for a while."""

    model: str
    silent: float  # seconds


@dataclass(frozen=True, slots=True)
class ModelDisbelieved:
    """A manifest came that is not the coordinator's."""

    model: str
    times: int  # so far
    reason: str


@dataclass(frozen=True, slots=True)
class Trained:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    round: int
    reason: str  # for others: no values of the device's data
    mistake: str = ""  # for the operator, if a configuration is wrong


@dataclass(frozen=True, slots=True)
class Unfit:
    """The conditions of this device's operator do not hold: it cannot take up the task in hand."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Receipted:
    round: int
    digest: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ResendRequested:
    digest: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RefusalReceived:
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class StateSeen:
    job: str
    run_id: str
    round: int
    phase: Literal["gathering", "training", "finished"]

    @property
    def run_key(self) -> str:
        return f"{self.job}.{self.run_id}"


@dataclass(frozen=True, slots=True)
class Stopped:
    pass


# ── actions: do them ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Announce:
    """Say that this device is there; or that it rests, if its operator's conditions do not hold."""


@dataclass(frozen=True, slots=True)
class AnnounceLater:
    """A coordinator will not work with this device now; it may have changed its mind when we come again."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fetch:
    task: Tasked


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The coordinator should publish a model again, or only its manifest if that is `forged`."""

    task: Tasked
    model: str
    forged: bool = False


@dataclass(frozen=True, slots=True)
class Train:
    task: Tasked


@dataclass(frozen=True, slots=True)
class CancelTraining:
    round: int


@dataclass(frozen=True, slots=True)
class Send:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Some of this update may have been sent before: ask what is missing."""

    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class SendChunks:
    digest: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Forget:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Sync:
    """An update that is on its way shall survive a power cut from now on."""

    run_key: str


@dataclass(frozen=True, slots=True)
class Decline:
    task: Tasked
    reason: str


@dataclass(frozen=True, slots=True)
class ReportBusy:
    """The task waits here until this device is free."""

    task: Tasked
    reason: str


@dataclass(frozen=True, slots=True)
class Quit:
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogNote:
    text: str


Heard: TypeAlias = (
    AgentConnected | AgentDisconnected | Tasked | Receipted | ResendRequested | RefusalReceived | StateSeen | Stopped
)
Worked: TypeAlias = ModelArrived | ModelOverdue | ModelDisbelieved | Trained | TrainingFailed | Unfit
Event: TypeAlias = Heard | Worked
Said: TypeAlias = Announce | Fetch | AskAgain | Send | Offer | SendChunks | Decline | ReportBusy  # only while online
Done: TypeAlias = AnnounceLater | Train | CancelTraining | Sync | Commit | Forget | Quit | LogNote
Action: TypeAlias = Said | Done
