"""Where a run stands: what the coordinator knows of it, and how one step is put together from smaller ones. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from coordinator.decide import modes, rounds, vocabulary
from coordinator.decide.roster import Device
from coordinator.decide.rounds import Event as RoundEvent
from coordinator.decide.rounds import Rounds, SetTimer
from coordinator.decide.story_limit import StoryLimit
from coordinator.decide.strikes import Conduct
from edgefl.base.device_labels import values_of
from edgefl.base.events import Fact
from edgefl.base.records import replace
from edgefl.base.where import Where

Phase: TypeAlias = Literal["idle", "preparing", "running", "clearing", "leaving", "ended"]


@dataclass(frozen=True)
class State:
    """Everything that is known about a run, and nothing that is large."""

    rounds: Rounds
    conduct: Conduct
    fed: tuple[RoundEvent, ...] = ()  # what the round machine was told in the last step, and changed by
    story: StoryLimit = field(default_factory=StoryLimit)
    left_out: frozenset[int] = frozenset()  # which facts of the last step are not written down
    looks: bool = False  # whether every merge is followed by a look at every device's model
    resumed: bool = False  # from a journal: what was in hand is taken up again at the first connection
    phase: Phase = "idle"
    devices: Mapping[str, Device] = field(default_factory=dict)
    fleet: frozenset[str] = frozenset()  # every device that ever joined
    enrolled: tuple[str, ...] = ()  # who belongs to the run, where that is known
    expired: frozenset[str] = frozenset()  # of these, whose certificate has ended
    where: Where | None = None  # which devices the run asks; None: all that may take part
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by device, as the operator gave them
    excluded: Mapping[str, str] = field(default_factory=dict)  # by device that `where` does not mean: why, as told
    barred: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by device: why it may not take part, as told
    model: vocabulary.PublishedModel | None = None  # of the round in hand
    models_since: int = 0  # the first round whose model was published in this life: those before cannot be fetched
    held: bool = False  # a round is open, and its invitations wait for the model
    announced: tuple[int, int] = (0, -1)  # the round that devices were last told of, and how large the fleet was then
    astray: int = 0  # the last round that a device may still be at work on, though it is over
    timer: SetTimer | None = None
    timer_due: float | None = None
    opened: Mapping[bytes, vocabulary.AnswerArrived] = field(default_factory=dict)  # answers that the shell looks into
    answers: Mapping[str, vocabulary.AnswerId] = field(default_factory=dict)  # by device: of the round in hand
    late: Mapping[str, vocabulary.AnswerId] = field(default_factory=dict)  # by device: to be merged with it
    unconfirmed: Mapping[str, vocabulary.AnswerId] = field(
        default_factory=dict
    )  # by device: safe, which it was not told yet
    confirm_due: float | None = None
    unlooked: int = 0  # rounds whose reports wait for a look at every device's model
    population: int = 0  # of the fleet, when the round in hand was closed
    since_merge: vocabulary.Totals = vocabulary.NOTHING
    total: vocabulary.Totals = vocabulary.NOTHING  # up to the last merge
    refusals: Mapping[str, int] = field(default_factory=dict)  # by code
    began: float = 0.0
    since: float = 0.0  # of the round in hand, its waiting for devices included
    waited: tuple[int, float] = (0, 0.0)  # the round in hand, and seconds of that until it was opened
    severed: frozenset[str] = frozenset()  # sites whose bridge is gone
    unheard: frozenset[str] = frozenset()  # present before the connection, and not heard of since
    unheard_due: float | None = None
    unsteady: frozenset[str] = frozenset()  # come and go so often that the rounds are told of it once a minute
    unsteady_due: float | None = None
    listened: float | None = None  # when the broker was last asked who is there; None: it is away
    searched: bool = False  # the broker has told what stands there
    paused: str = ""
    away: str = ""  # why the broker is not there
    reason: str = ""  # why it waits, as it was told
    look_due: float | None = 0.0  # when to look whether that has changed
    quiet_due: float | None = None
    stopped: bool = False  # it ends before the run does
    end_due: float | None = None
    poll_due: float | None = None


Step: TypeAlias = tuple[State, tuple[vocabulary.Action, ...], tuple[Fact, ...]]


def unfinished(s: State) -> bool:
    """Whether there is still something to be coordinated."""
    return s.phase in ("idle", "preparing", "running")


def recalling(s: State) -> bool:
    """Whether no device can be heard yet: what was promised before a restart is not loaded."""
    return s.resumed and s.phase == "preparing"


def online(s: State, device: str) -> bool:
    """Whether the device is there."""
    return device in s.devices and s.devices[device].online


def exclusion(s: State, device: str) -> str:
    """Return why `rounds.where` does not mean a device that has announced itself; empty if it does."""
    if s.where is None:
        return ""
    return s.where.objection(values_of(device, s.labels.get(device, {}), s.devices[device].announced.properties))


def hearers(s: State) -> frozenset[str]:
    """Return the devices that hear a call to all: those that rounds may ask, and those that `where` leaves out."""
    return s.rounds.present.union(id for id in s.excluded if online(s, id))


but = replace  # the same state but for some fields


T = TypeVar("T")


def each(now: Step, items: Iterable[T], more: Callable[[State, T], Step]) -> Step:
    """The step, and one more for each of these."""
    for item in items:
        s, did, told = more(now[0], item)
        now = s, (*now[1], *did), (*now[2], *told)
    return now


def then(now: Step, more: Callable[[State], Step]) -> Step:
    """The step, and one more behind it."""
    s, actions, facts = now
    s, did, told = more(s)
    return s, (*actions, *did), (*facts, *told)


def doing(actions: tuple[vocabulary.Action, ...], now: Step) -> Step:
    """The step, after these actions."""
    return now[0], (*actions, *now[1]), now[2]


def telling(facts: Fact | tuple[Fact, ...], now: Step) -> Step:
    """The step, after these facts are told."""
    first = (facts,) if isinstance(facts, Fact) else facts
    return now[0], now[1], (*first, *now[2])


def is_due(moment: float | None, at: float) -> bool:
    return moment is not None and at >= moment


def say_state(s: State, phase: vocabulary.RunPhase | None = None) -> vocabulary.SayState:
    """What devices are told of the run; by default, as the rounds stand."""
    known: dict[rounds.Phase, vocabulary.RunPhase] = {"open": "training", "merging": "training", "finished": "finished"}
    stands = phase or known.get(s.rounds.phase, "gathering")
    return vocabulary.SayState(stands, modes.oldest_welcome(s.rounds), len(s.fleet))
