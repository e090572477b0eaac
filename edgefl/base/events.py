"""Facts: what happened in a run, each defined here once, for all drivers and all readers of a run.

Loop, emulated fleet and coordinator tell the same facts. Journal, `metrics.jsonl`, the live view, `edgefl compare` and
`edgefl replay` are readers of this one stream; none of them looks into a coordinator.

* `at` is when it was told: seconds since 1970, or virtual seconds of an emulated fleet. Fields that read a clock are
  marked with `CLOCK`; everything else of an undisturbed run is the same in every driver.
* A fact that only matters to a live view is not `lasting`: it is shown, and never written down.
* In JSON a fact is one object: its `event` (the name of its class, in small letters), then its fields.

To add one: write the class, add it to `FACTS` and `__all__`, tell it where it happens. Its docstring documents it.

How quantities are counted, everywhere:

  bytes_down   frames of models that devices have to fetch: each model once for each device that is asked to work on
               it and does not have it (one that is asked again has it; an algorithm that looks back needs two from
               a device that missed the round before). Graphs, chunk headers and small messages are not counted.
  bytes_up     frames of answers that arrived whole since the last merge, whatever became of them
  seconds      of a round: from the merge before it (or the start) to its own, waiting included
  waiting_seconds  of these, until the round was opened: no device was at work
  late         answers since the last merge to a round that was closed already, kept by policy or not
  refused      messages since the last merge that could not be used
  scores       figures of a model on samples that it was not trained on, what it is judged by first, by the same names
               wherever they are written: metrics.jsonl, the page, reports, comparisons and exporters. Each is defined
               in edgefl/learn/evaluation/figures.py; the common ones (`accuracy`, `loss`, ...) are properties too

A callback of `edgefl.simulate` is told all of them:

>>> import edgefl
>>> told = []
>>> history = edgefl.simulate("softmax", "digits", fleet=4, rounds=2, callbacks=[told.append])
>>> [event.round for event in told if isinstance(event, edgefl.events.Round)]
[1, 2]
>>> isinstance(told[-1], edgefl.events.Done)
True
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

from edgefl.base.schedule import Purpose
from edgefl.base.scores import Scored, Scores, beside, upgraded
from edgefl.base.vitals import VitalSigns

__all__ = [
    "CLOCK",
    "DIVERGED",
    "FACTS",
    "Abandoned",
    "Answered",
    "Asked",
    "Busy",
    "Certificate",
    "Certified",
    "Changed",
    "Closed",
    "Connected",
    "DataBroken",
    "DataMended",
    "Declined",
    "Described",
    "Disconnected",
    "Done",
    "Enrolled",
    "Evaluated",
    "Evaluating",
    "Excluded",
    "Expired",
    "Extended",
    "Fact",
    "Failed",
    "Included",
    "Inherited",
    "Interrupted",
    "Joined",
    "Labelled",
    "LeftOut",
    "Lost",
    "Paused",
    "Preparing",
    "Progressed",
    "Quarantined",
    "Refused",
    "Released",
    "Resumed",
    "Round",
    "Sending",
    "Shown",
    "Started",
    "Tell",
    "Verdict",
    "Vitals",
    "Waiting",
    "as_json",
    "as_record",
    "from_json",
    "timeless",
]

Verdict: TypeAlias = Literal["accepted", "late", "ignored", "refused"]


CLOCK = {"clock": True}  # a field that reads a clock: drivers of the same run differ in it


@dataclass(frozen=True, slots=True)
class Fact:
    """Something happened."""

    lasting: ClassVar[bool] = True
    at: float = field(default=0.0, kw_only=True, metadata=CLOCK)


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """A coordinator is at its broker, for the first time or again; its models are signed with this key."""

    run: str
    run_id: str
    broker: str = ""
    key: str = ""
    algorithm: str = ""
    rounds: int = 0
    deadline: float = 0.0  # seconds that a round may take


@dataclass(frozen=True, slots=True)
class Preparing(Fact):
    """Something keeps us from the run for some seconds."""

    lasting: ClassVar[bool] = False
    what: str


@dataclass(frozen=True, slots=True)
class Shown(Fact):
    """Where a browser can watch the run, and what else there is to know of that; without an address: why nowhere."""

    lasting: ClassVar[bool] = False
    url: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Evaluating(Fact):
    """What the run will be judged by: how many samples are looked at, and how many are not."""

    data: str | None
    samples: int
    set_aside: int
    unscaled: Any
    public: int
    classes: int
    class_names: tuple[str, ...] | None
    targets: int = 1  # real numbers that are predicted of each sample, where there are no classes
    target_names: tuple[str, ...] | None = None
    on: str = "coordinator"  # who evaluates: the coordinator, devices on data they set aside, or both
    every: int = 1  # the model of every so manieth round, and the last one
    split: str = "test"  # or "validation": a part of the training data, to choose settings by
    first: Scores | None = None  # of the model it begins with, where they are known by then
    kind: str = ""  # of task, where it is none of the plain ones

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the classes, or the targets, are called."""
        return self.class_names or self.target_names


@dataclass(frozen=True, slots=True)
class Inherited(Fact):
    """The run begins with a model that was trained before: where it came from, and which it is."""

    source: str  # run.from
    model_sha256: str = ""
    run: str = ""  # which run made it, and after how many rounds, as far as its file says
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Resumed(Fact):
    """The coordinator was restarted, and goes on with this round."""

    round: int


@dataclass(frozen=True, slots=True)
class Changed(Fact):
    """A resumed run goes on with another value of this key of its run file."""

    key: str
    before: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Connected(Fact):
    """The broker is there."""


@dataclass(frozen=True, slots=True)
class Disconnected(Fact):
    """The broker is gone, or could not be reached."""

    reason: str


@dataclass(frozen=True, slots=True)
class Paused(Fact):
    """Nothing goes on until this is mended; nothing is lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting(Fact):
    """Why the run waits, in one line for a human: when that changes, and once more when it lasts."""

    lasting: ClassVar[bool] = False
    reason: str
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class Interrupted(Fact):
    """No coordinator is at work on a run that has not ended; told by the reader of its folder."""

    lasting: ClassVar[bool] = False


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Joined(Fact):
    """A device is there."""

    device: str
    samples: int = 0
    host: str = ""
    version: str = ""
    back_end: str = ""
    stale: bool = False  # its newest data cannot be used, as `DataBroken` says behind this
    arch: str = ""  # of its machine, as the device says
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Lost(Fact):
    """A device is gone: it said so, its connection broke, or it was not heard of again."""

    device: str
    reason: str = ""
    resting: bool = False  # it said so itself: its operator's conditions do not hold, and it will be back


@dataclass(frozen=True, slots=True)
class Enrolled(Fact):
    """These devices belong to the run, whether or not they ever came: what its fleet's members or `[devices]` say."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expired(Fact):
    """The certificate of a member has ended (seconds since 1970): the broker does not let the device in any more."""

    device: str
    ended: float
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Labelled(Fact):
    """These devices have these labels from now on, by which `rounds.where` chooses."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by device


@dataclass(frozen=True, slots=True)
class Excluded(Fact):
    """A device is there and is not asked: `rounds.where` does not mean it, because its labels and properties are so."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class Included(Fact):
    """`rounds.where` means a device that it did not mean before: it is asked from now on."""

    device: str


@dataclass(frozen=True, slots=True)
class DataBroken(Fact):
    """A device's newest data cannot be used: it trains on those it read at `samples_from`, or, if None, not at all."""

    device: str
    reason: str
    samples_from: float | None = None
    version: str = ""  # of edgefl, and the host: of a device that has never joined, this is all that is known
    host: str = ""


@dataclass(frozen=True, slots=True)
class DataMended(Fact):
    """A device's data can be used again."""

    device: str


@dataclass(frozen=True, slots=True)
class Progressed(Fact):
    """A device is at this step of its work."""

    lasting: ClassVar[bool] = False
    device: str
    round: int
    steps: int


@dataclass(frozen=True, slots=True)
class Sending(Fact):
    """The first part of an answer is here."""

    lasting: ClassVar[bool] = False
    device: str


@dataclass(frozen=True, slots=True)
class Answered(Fact):
    """An answer arrived whole. `verdict` is what became of it, `reason` why, unless it simply counts."""

    device: str
    round: int
    bytes: int
    verdict: Verdict = "accepted"
    reason: str = ""
    steps: int = 0
    took: float | None = field(default=None, kw_only=True, metadata=CLOCK)  # since it was asked
    seconds_per_step: float | None = field(default=None, kw_only=True, metadata=CLOCK)


@dataclass(frozen=True, slots=True)
class Declined(Fact):
    """A device will not answer this round, and says why."""

    device: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Busy(Fact):
    """A device works for another run first, and keeps the task until then."""

    device: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refused(Fact):
    """A message that cannot be used, and whose it was as far as that is known.

    `barred`: a device announced itself and may not take part as long as the reason holds; told once for each reason.
    """

    device: str
    code: str
    reason: str
    barred: bool = False
    version: str = ""  # of edgefl, and the host: of a device that is barred
    host: str = ""


@dataclass(frozen=True, slots=True)
class Quarantined(Fact):
    """A device sent too much that cannot be used; it is not heard for a while."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class Released(Fact):
    """A device's quarantine is over."""

    device: str


@dataclass(frozen=True, slots=True)
class Certified(Fact):
    """A device has a new certificate: its old one would have ended soon."""

    device: str


@dataclass(frozen=True)
class _OfDevice:
    """A field that stands before those of another base class."""

    __slots__ = ()
    device: str


@dataclass(frozen=True, slots=True)
class Vitals(VitalSigns, _OfDevice, Fact):
    """How a device's machine fares; None where it does not tell. Simulated devices have none, and tell nothing."""


@dataclass(frozen=True, slots=True)
class LeftOut(Fact):
    """So much of what a device did in an hour is not written down one by one; `there`: it is there at the end."""

    device: str
    times: Mapping[str, int] = field(default_factory=dict)  # by kind of fact
    there: bool = False


@dataclass(frozen=True, slots=True)
class Certificate(Fact):
    """Until when a device can show a certificate, where its fleet has members: seconds since 1970."""

    lasting: ClassVar[bool] = False
    device: str
    ends: float


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Asked(Fact):
    """These devices were asked to work on a round; one opening of a round may ask several times."""

    round: int
    opening: int
    devices: tuple[str, ...]
    bytes_down: int
    purpose: Purpose = "train"  # or only to evaluate the last model


@dataclass(frozen=True, slots=True)
class Extended(Fact):
    """The time of a round is up, and too few have answered: it gets more."""

    round: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abandoned(Fact):
    """A round is given up, and will be opened again."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Closed(Fact):
    """A round has all that it will be merged from; late answers to earlier rounds are merged with it."""

    round: int
    devices: tuple[str, ...]
    missing: tuple[str, ...] = ()  # were asked, and did not answer
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Round(Scored, Fact):
    """A round is merged, and this is how good its model is. One without devices was a free round."""

    round: int
    scores: Scores = field(default_factory=dict)  # empty: this model was not evaluated
    per_target: tuple[Mapping[str, float | None], ...] | None = None  # mae, rmse, r2 of each of several real targets
    forgetting: float | None = None
    local_forgetting: float | None = None
    aggregation_forgetting: float | None = None
    per_class: tuple[float | None, ...] | None = None
    devices: int = 0
    late: int = 0
    refused: int = 0
    updates: Mapping[str, float] = field(default_factory=dict)  # what updates counted, summed over the devices
    stages: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)  # what stages counted
    bounded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what was taken from whom
    staleness: float | None = None  # in buffered rounds: how many rounds ago its answers began, in the mean
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = field(default=0.0, kw_only=True, metadata=CLOCK)
    waiting_seconds: float = field(default=0.0, kw_only=True, metadata=CLOCK)
    cpu_seconds: float | None = field(default=None, kw_only=True, metadata=CLOCK)  # of a simulation
    virtual_seconds: float | None = field(default=None, kw_only=True, metadata=CLOCK)  # the same two,
    virtual_waiting_seconds: float | None = field(default=None, kw_only=True, metadata=CLOCK)  # of an emulated fleet
    joules: float | None = field(default=None, kw_only=True, metadata=CLOCK)  # of its devices, as their profiles assume


@dataclass(frozen=True, slots=True)
class Evaluated(Scored, Fact):
    """What devices saw of the model after a round, on data they set aside; told when the next round closes.

    There are no figures where no device had enough data.
    """

    round: int
    scores: Scores = field(default_factory=dict)  # empty: this model was not evaluated
    per_target: tuple[Mapping[str, float | None], ...] | None = None
    forgetting: float | None = None  # since the evaluation before
    per_class: tuple[float | None, ...] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None  # rows: the class; columns: what it was taken for
    samples: int = 0
    devices: int = 0  # that evaluated
    silent: int = 0  # that answered, and had too few samples set aside
    bounded: int = 0  # that `guards.weight_cap` counted for fewer samples than they saw
    median: float | None = None  # over devices, of what the run is chiefly judged by; of three devices at least
    worst_tenth: float | None = None  # the same, the mean of the worst ones
    local_scores: Scores = field(default_factory=dict)  # of the models that devices trained from it
    per_device: Mapping[str, Mapping[str, float]] | None = None  # where the run tells it
    bytes_up: int = 0  # of a round that was not merged, and of which no `Round` tells
    bytes_down: int = 0


@dataclass(frozen=True, slots=True)
class Described(Fact):
    """What the devices of the round before the first said of their data, all together; it made no model.

    Numbers of features and classes are told as far as there are not too many of them.
    """

    round: int
    devices: int = 0  # that said something
    samples: int = 0
    silent: int = 0  # that answered, and have too few samples to say anything
    bounded: int = 0  # that `guards.weight_cap` counted for fewer samples than they have
    features: int = 0
    mean: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None
    class_counts: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None  # in the loss, from now on
    class_names: tuple[str, ...] | None = None
    bytes_up: int = 0
    bytes_down: int = 0


DIVERGED = "diverged"  # why a simulated run stopped, whose rounds so far are its result


@dataclass(frozen=True, slots=True)
class Done(Scored, Fact):
    """The run has ended."""

    run: str
    algorithm: str
    rounds: int
    scores: Scores = field(default_factory=dict)  # empty: this model was not evaluated
    per_target: tuple[Mapping[str, float | None], ...] | None = None
    best_score: Scores = field(default_factory=dict)  # the figure that models are judged by, at its best
    best_round: int | None = None
    stopped: str = ""  # why before its last round, if so; DIVERGED where learning left the finite numbers
    why: str = ""  # of one that diverged: where, in which round, and the likely cause
    per_class: tuple[float | None, ...] | None = None
    class_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    rounds_to_target: int | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_to_target: int | None = None
    late: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # by code
    privacy: Mapping[str, Any] | None = None  # what a simulated fleet spent: the bill of the device that spent most
    model_sha256: str = ""
    seconds: float = field(default=0.0, kw_only=True, metadata=CLOCK)
    cpu_seconds: float | None = field(default=None, kw_only=True, metadata=CLOCK)
    virtual_seconds: float | None = field(default=None, kw_only=True, metadata=CLOCK)
    virtual_seconds_to_target: float | None = field(default=None, kw_only=True, metadata=CLOCK)
    joules: float | None = field(default=None, kw_only=True, metadata=CLOCK)

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the classes, or the targets, are called."""
        return self.class_names or self.target_names


@dataclass(frozen=True, slots=True)
class Failed(Fact):
    """The run has ended with an error; told by the driver."""

    reason: str


FACTS: tuple[type[Fact], ...] = (
    Started,
    Preparing,
    Shown,
    Evaluating,
    Inherited,
    Resumed,
    Changed,
    Connected,
    Disconnected,
    Paused,
    Waiting,
    Interrupted,
    Joined,
    Lost,
    Enrolled,
    Expired,
    Labelled,
    Excluded,
    Included,
    DataBroken,
    DataMended,
    Progressed,
    Sending,
    Answered,
    Declined,
    Busy,
    Refused,
    Quarantined,
    Released,
    Certified,
    Certificate,
    Vitals,
    LeftOut,
    Asked,
    Extended,
    Abandoned,
    Closed,
    Described,
    Round,
    Evaluated,
    Done,
    Failed,
)
_BY_NAME = {fact.__name__.lower(): fact for fact in FACTS}

Tell: TypeAlias = Callable[[Fact], None]


def as_json(fact: Fact) -> dict[str, Any]:
    """The fact as one JSON object: what happened first, then its fields, when it was told last."""
    kind: type = type(fact)
    return {"event": kind.__name__.lower(), **{name: getattr(fact, name) for name in _names(kind)}, "at": fact.at}


def as_record(fact: Fact) -> dict[str, Any]:
    """The same for `--json` and records: the common figures are keys of their own as well (`accuracy`, `loss`, ...)."""
    return beside(as_json(fact))


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a fact but its time."""
    return tuple(one.name for one in fields(kind) if one.name != "at")


def from_json(told: Mapping[str, Any]) -> Fact:
    """The fact behind a JSON object, of schema 1 as well; fields that this version does not know are left out."""
    kind = _BY_NAME[told["event"]]
    known = {one.name for one in fields(kind)}
    return kind(**{key: _frozen(value) for key, value in upgraded(told).items() if key in known})


def timeless(fact: Fact) -> dict[str, Any]:
    """The same without what reads a clock: what all drivers of a run agree on."""
    told = as_json(fact)
    return {"event": told["event"]} | {
        one.name: told[one.name] for one in fields(fact) if not one.metadata.get("clock")
    }


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
