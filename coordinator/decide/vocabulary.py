"""What can happen to a coordinator, and what it can be told to do: the words between core.py and its shell.

Events have the time they happened at (`at`, on a clock that only grows); actions are carried out in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from coordinator.decide.roster import Announcement
from coordinator.decide.rounds import DeviceBusy, DeviceDeclined
from edgefl.base.events import Fact, Vitals

RunPhase: TypeAlias = Literal["gathering", "training", "finished"]  # what devices are told of the run


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """The model of a round, ready to be fetched."""

    round: int
    bytes: int
    previous: int = 0  # bytes of the model before it, which devices need as well; 0: they do not


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted, as edgefl/base/events.py defines it."""

    bytes_up: int = 0
    bytes_down: int = 0
    late: int = 0
    refused: int = 0

    def __add__(self, more: "Totals") -> "Totals":
        up, down = self.bytes_up + more.bytes_up, self.bytes_down + more.bytes_down
        return Totals(up, down, self.late + more.late, self.refused + more.refused)


NOTHING = Totals()


@dataclass(frozen=True, slots=True)
class AnswerId:
    """An answer that will be merged: to which round it was, and the digest of its frame."""

    round: int
    digest: bytes


# ── events: they happened ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CoordinatorConnected:
    at: float


@dataclass(frozen=True, slots=True)
class CoordinatorDisconnected:
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Announced:
    at: float
    device: str
    announcement: Announcement
    retained: bool = False
    refusal: tuple[str, str] | None = None  # a code and a reason, where it cannot take part under any name
    key: str | None = None  # whose it is, where the name belongs to another
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A presence comes without a signature, or in an envelope of another version; the broker alone says whose it is."""

    at: float
    device: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Begun:
    """The first part of something large is here."""

    at: float
    device: str


@dataclass(frozen=True, slots=True)
class ProgressReported:
    at: float
    device: str
    round: int
    steps: int
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """A device was interrupted while it sent an answer: is it still wanted?"""

    at: float
    device: str
    round: int
    digest: bytes
    size: int
    ours: bool = True  # of this run; if not, it may be a replay of what was said to another


@dataclass(frozen=True, slots=True)
class AnswerArrived:
    """An answer is here whole, and not opened yet."""

    at: float
    device: str
    round: int
    digest: bytes
    size: int
    steps: int = 0
    seconds_per_step: float = 0.0
    foreign: str = ""  # whose it is, if it is not this device's answer to this run


@dataclass(frozen=True, slots=True)
class Usable:
    """The answer was opened, and its numbers can be used."""

    at: float
    digest: bytes
    loss: float | None = None  # that it tells of the model it began from


@dataclass(frozen=True, slots=True)
class Unusable:
    """They cannot."""

    at: float
    digest: bytes
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """A device sent something that cannot be used."""

    at: float
    device: str
    code: str
    reason: str
    frame: bytes | None = None  # the digest of a whole frame of its own that cannot be read: perhaps an answer


@dataclass(frozen=True, slots=True)
class Revoked:
    """The device with this name is no longer heard: the fleet has sent it away, or its certificate has ended."""

    at: float
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class MembersRead:
    """Who belongs to the run at this moment, and since when the certificates of some have ended, with the remedy."""

    at: float
    devices: tuple[str, ...]
    expired: tuple[tuple[str, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LabelsRead:
    """The operator has given these labels, by device; devices that are not named have none."""

    at: float
    labels: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SiteLost:
    """The bridge of a site is gone: of its devices nothing is heard until it is back."""

    at: float
    site: str


@dataclass(frozen=True, slots=True)
class SiteBack:
    """The bridge of a site is there, perhaps again."""

    at: float
    site: str


@dataclass(frozen=True, slots=True)
class Expiring:
    """The certificate of a device ends soon; it asks for another."""

    at: float
    device: str
    request: str


@dataclass(frozen=True, slots=True)
class CertificateSigned:
    """The fleet's authority has signed one."""

    at: float
    device: str
    certificate: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was promised before a restart: the answers to the round in hand, and those that came late."""

    answers: Mapping[str, AnswerId] = field(default_factory=dict)
    late: Mapping[str, AnswerId] = field(default_factory=dict)
    later: Mapping[str, AnswerId] = field(default_factory=dict)  # came after the round in hand was closed
    population: int = 0  # when it was closed
    total: Totals = NOTHING


@dataclass(frozen=True, slots=True)
class Prepared:
    """The job is made, as it stood after this number of rounds; `model` is of the next one."""

    at: float
    round: int
    model: PublishedModel | None
    done: bool = False
    recalled: Recalled = Recalled()
    told: tuple[Fact, ...] = ()  # once more: they may not have been heard before a restart


@dataclass(frozen=True, slots=True)
class Merged:
    """A round is merged, and those behind it that need no device; `model` is of the next one."""

    at: float
    round: int
    model: PublishedModel | None
    done: bool = False
    reports: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Handed:
    """The model of the round that a gateway was asked for; None: the run has ended there."""

    at: float
    model: PublishedModel | None


@dataclass(frozen=True, slots=True)
class ReportsCompleted:
    """The reports that had to wait until the model of every device was evaluated."""

    at: float
    reports: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class WorkPaused:
    """Something keeps the shell from going on, or, with no reason, does not any more."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Searched:
    """The broker has told everything that stands there."""

    at: float


@dataclass(frozen=True, slots=True)
class Woken:
    at: float
    flushed: bool = False  # everything that was said is at the broker


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of the run is asked for."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run cannot go on."""

    at: float


Heard: TypeAlias = (
    Announced
    | Unreadable
    | DeviceDeclined
    | DeviceBusy
    | Begun
    | ProgressReported
    | Offered
    | AnswerArrived
    | Misbehaved
    | Expiring
)
Worked: TypeAlias = Usable | Unusable | Prepared | Merged | Handed | ReportsCompleted | CertificateSigned | WorkPaused
Outside: TypeAlias = (
    CoordinatorConnected
    | CoordinatorDisconnected
    | Searched
    | Revoked
    | MembersRead
    | LabelsRead
    | SiteLost
    | SiteBack
    | Woken
    | Stop
    | RunFailed
)
Event: TypeAlias = Heard | Worked | Outside


# ── actions: do them ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Listen:
    """Subscribe to what devices say, and ask the broker what stands there of this run."""


@dataclass(frozen=True, slots=True)
class ListenAgain:
    """Ask the broker once more who is there: what it lost on its way here is not said again by itself."""


@dataclass(frozen=True, slots=True)
class SayState:
    """Tell every device where the run stands."""

    phase: RunPhase
    round: int
    fleet: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Put the model of the next round at the broker, as it was last made; models that are in use stay there too."""

    in_use: frozenset[int] = frozenset()  # the rounds that a device is at work on


@dataclass(frozen=True, slots=True)
class PublishAgain:
    """The broker may have lost everything."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the job, and after a restart whatever belongs to it."""


@dataclass(frozen=True, slots=True)
class Meet:
    """From now on this device may send."""

    device: str


@dataclass(frozen=True, slots=True)
class Invitee:
    """One device that is asked, and what its task says about it."""

    device: str
    installation: str
    counted: int  # the last round its answer was merged in
    seconds_per_step: float | None
    has_model: bool = False  # it was told of this round's model before


@dataclass(frozen=True, slots=True)
class Ask:
    round: int
    opening: int
    devices: tuple[Invitee, ...]
    together: bool = False  # in one call, which all devices hear
    bystanders: int = 0  # the number of them in vain


@dataclass(frozen=True, slots=True)
class Open:
    """Look into this answer, and say whether it is usable."""

    device: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer counts; the device is told so by a Confirm, or by its next task."""

    device: str
    round: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """The answer is safe; the device may forget it."""

    device: str
    round: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class AcceptLate:
    """The answer is kept by policy, though its round is over; the device may forget it."""

    device: str
    round: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Ignore:
    """The answer is not wanted; the device may forget it. Its message counts against what it may send."""

    device: str
    round: int
    digest: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The answer cannot be used; the device may forget it."""

    device: str
    round: int
    digest: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class RequestMissing:
    """The answer is wanted: ask for whatever of it is missing."""

    device: str
    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Tell a device that it is not worked with now."""

    device: str
    code: str
    reason: str
    installation: str | None = None  # which is meant, when two share an id
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Do not hear this device any more, nor let the broker say that it is there."""

    device: str


@dataclass(frozen=True, slots=True)
class Certify:
    """Have the fleet's authority sign this request."""

    device: str
    request: str


@dataclass(frozen=True, slots=True)
class SendCertificate:
    """Send a device its new certificate."""

    device: str
    certificate: str


@dataclass(frozen=True, slots=True)
class Merge:
    round: int
    answers: Mapping[str, AnswerId]
    late: Mapping[str, AnswerId]
    population: int
    spent: Totals = NOTHING  # of this round
    total: Totals = NOTHING  # and of all
    since: float = 0.0  # when the round before it was merged, or the coordinator began to wait for its first
    waited: float = 0.0  # seconds of that until the round was opened


@dataclass(frozen=True, slots=True)
class DropAnswers:
    """Drop these answers."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell all views once more: it was written down before."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class ClearModels:
    """Take away what this run has published."""


@dataclass(frozen=True, slots=True)
class ClearLeftovers:
    """Take away what earlier lives have left."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Close everything; where the run has finished, tell how it went."""

    finished: bool
    total: Totals
    refusals: Mapping[str, int]
    seconds: float


Verdict: TypeAlias = Accept | AcceptLate | Ignore | Refuse
ToDevice: TypeAlias = Ask | Confirm | RequestMissing | TurnAway | SendCertificate | Verdict
ToBroker: TypeAlias = Listen | ListenAgain | SayState | Publish | PublishAgain | ClearModels | ClearLeftovers
ToShell: TypeAlias = Prepare | Meet | Dismiss | Open | Certify | Merge | DropAnswers | Tell | Leave
Action: TypeAlias = ToDevice | ToBroker | ToShell
