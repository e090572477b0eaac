"""When rounds open, whom they ask and when they close: a pure function, `step(state, event) -> state, actions`.

    starting  ── DeviceJoined, TimerExpired, RunResumed ─────▶ open       start_with present; without it: all that
                                                                          it asks, or a quorum after a deadline
    starting  ── TimerExpired ───────────────────────────────▶ gathering  a deadline has passed, and there is no quorum
    gathering ── DeviceJoined, RunResumed ───────────────────▶ open       a quorum is present
    open      ── DeviceAnswered, DeviceDeclined, DeviceLost ─▶ merging    all have answered, or the cohort of an
    open      ── TimerExpired, RunResumed ───────────────────▶ merging    over-selection, or a quorum at the deadline
    open      ── TimerExpired ───────────────────────────────▶ gathering  too few, too often, too few present: Abandon
    merging   ── RoundMerged ────────────────────────────────▶ gathering  the next round, without a quorum
    merging   ── RoundMerged ────────────────────────────────▶ open       the next round
    merging   ── RoundMerged ────────────────────────────────▶ finished   it was the last one, or enough is known
    starting  ── Overtaken ──────────────────────────────────▶ open       a gateway: whom it answers to has gone on to
    starting  ── Overtaken ──────────────────────────────────▶ gathering  another round, or the run has ended there
    gathering ── Overtaken ──────────────────────────────────▶ open
    open      ── Overtaken ──────────────────────────────────▶ gathering
    merging   ── Overtaken ──────────────────────────────────▶ open
    merging   ── Overtaken ──────────────────────────────────▶ gathering
    starting  ── Overtaken ──────────────────────────────────▶ finished
    gathering ── Overtaken ──────────────────────────────────▶ finished
    open      ── Overtaken ──────────────────────────────────▶ finished
    merging   ── Overtaken ──────────────────────────────────▶ finished
    gathering ── RunResumed ─────────────────────────────────▶ finished   fewer rounds are wanted now than are done
    open      ── RunResumed ─────────────────────────────────▶ finished   the same
    open      ── RunResumed ─────────────────────────────────▶ gathering  the round is for something else now, as more
    merging   ── RunResumed ─────────────────────────────────▶ gathering  rounds are wanted: asked anew, with a quorum
    merging   ── RunResumed ─────────────────────────────────▶ open       the same, and a quorum is there

This is how rounds go that wait for their devices; where those that train are buffered, buffered.py has them, with
the same state, events and actions (modes.py chooses).

A deadline with too few answers leaves a round open: the silent are asked again, and spares. The picture is checked
against what the machine does (tests/coordinator/decide/test_diagrams.py).

Only the first round waits for a fleet to come together. Every other one opens at once with the devices that are
there, if they are a quorum: a device that is away is not waited for. One that was away for a moment only is asked when
it is back, as long as the round lacks devices and has no answer yet.

What a round is for is a function of its number (schedule.py). One in which devices describe their data comes
before all others, and asks all that are there. One that only evaluates the last model never holds
that model back: it opens without a quorum, and closes at its deadline with the answers that came, even none.

House rules
  1. `step` is the only door. It changes nothing: it gives back the next state and what the shell shall do.
  2. Ids and numbers only. No decision reads a clock (`at` and `reason` are for the journal's readers), and none
     depends on the order of a set. The same events give the same actions, so a journal of events is the whole truth.
  3. One timer at a time, named by round and attempt. Attempts only grow, so an older timer means nothing.
  4. A device that is listed in a MergeRound was asked, has answered and counts once; there is one for a round.
  5. Nothing a device says is an error. Every answer gets a verdict: AcceptAnswer, AcceptLateAnswer, or IgnoreAnswer
     with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any, Literal, TypeAlias

from edgefl.base.records import replace
from edgefl.base.schedule import Purpose, Schedule
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.learn.selection.registry import selection

WHAT = {"evaluate": "the last model's evaluation", "describe": "the round in which devices describe their data"}
Phase: TypeAlias = Literal["starting", "gathering", "open", "merging", "finished"]
Reason: TypeAlias = Literal["duplicate", "late", "stale", "not invited", "future", "finished"]


_schedule = cache(Schedule)  # every answer asks for the same one


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator asked for."""

    rounds: int
    seed: int
    cohort: int  # answers a round would like
    quorum: int  # answers it can live with
    deadline: float  # seconds
    over_select: float = 1.0  # ask this many times the cohort, take the fastest
    start_with: int | None = None  # must be there before round 1; None: all it asks, or after a deadline a quorum
    late: Literal["drop", "discount", "memory"] = "drop"
    attempts: int = 3  # how often a deadline is extended before the round is abandoned
    cohort_rounds: int = 1  # for how many consecutive rounds the same draw of devices is used
    selection: Mapping[str, Any] = field(default_factory=lambda: {"name": "uniform"})  # as the run file has it
    evaluates: bool = False  # one more round, in which devices only evaluate the last model
    describes: bool = False  # and one before all others, in which all devices describe their data
    buffered: bool = False  # rounds that train are buffered (buffered.py); then the cohort is at work at once, and
    staleness: int = 20  # every quorum of answers is merged that began at most this number of rounds ago

    def __post_init__(self) -> None:
        if not 1 <= self.quorum <= self.cohort:
            raise ValueError(f"quorum {self.quorum} must be at least 1 and at most the cohort, {self.cohort}")
        if not self.buffered and self.start_with is not None and self.start_with < self.quorum:
            raise ValueError(f"start_with {self.start_with} is smaller than quorum {self.quorum}")
        if self.rounds < 1 or self.deadline <= 0 or self.over_select < 1 or self.attempts < 0:
            raise ValueError(f"needs rounds >= 1, deadline > 0, over_select >= 1, attempts >= 0: {self}")

    @property
    def schedule(self) -> Schedule:
        return _schedule(self.rounds, self.evaluates, self.describes)

    def draw(self, round: int) -> int:
        """The number of the draw that gives a round its devices; rounds that share it share them."""
        return 1 + (round - 1) // self.cohort_rounds

    @property
    def size(self) -> int:
        """How many devices a round asks."""
        return ceil(self.cohort * self.over_select - 1e-9)  # 10 * 1.1 is a little more than 11


@dataclass(frozen=True, slots=True)
class Work:
    """What a device has in hand in buffered rounds: which round's model it trains, and since which timer."""

    round: int
    attempt: int


@dataclass(frozen=True)  # without slots: one is made for every event (edgefl/base/records.py)
class Rounds:
    """Everything the machine knows; `json.dumps(asdict(state), default=sorted)` writes it down."""

    rules: Rules
    phase: Phase = "starting"
    round: int = 1  # the one in hand
    attempt: int = 0  # names the current timer
    opening: int = 0  # the attempt that opened this round; the task's name for the devices
    present: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()  # in the order they were asked
    answered: frozenset[str] = frozenset()
    declined: frozenset[str] = frozenset()  # will not answer, or has been replaced: not waited for
    busy: frozenset[str] = frozenset()  # at work for another run, they said; this task waits at the device
    extended: int = 0  # how often the deadline of this opening was, though no device was busy elsewhere
    counted: Mapping[str, int] = field(default_factory=dict)  # the last round each device's answer was merged in
    owed: Mapping[str, int] = field(default_factory=dict)  # the last round that closed without each device's answer
    known: Mapping[str, Candidate] = field(default_factory=dict)  # what the next draw will know of each device
    draw: int = 0  # the number of the last one
    knew: Mapping[str, Candidate] = field(default_factory=dict)  # what it knew: all its rounds ask in the same order
    purpose: Purpose = "train"  # what this round was opened for
    work: Mapping[str, Work] = field(default_factory=dict)  # buffered: who was asked and has not answered, here or away
    heard: Mapping[str, float] = field(default_factory=dict)  # buffered: losses, until the round with them is closed
    later: frozenset[str] = frozenset()  # buffered: whose answers came while a round is merged; the next has them
    unmerged: bool = False  # finished, and the round behind the last one is closed: it told that the run can end


# ── events: they happened ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DeviceJoined:
    device: str
    at: float
    samples: int = 0


@dataclass(frozen=True, slots=True)
class DeviceLost:
    device: str
    at: float


@dataclass(frozen=True, slots=True)
class DeviceAnswered:
    device: str
    round: int
    at: float
    seconds_per_step: float | None = None
    seconds: float | None = None  # for all its steps
    loss: float | None = None  # of the model it began from, as it says

    @property
    def news(self) -> dict[str, float]:
        """What a selection may look at from now on."""
        told = {"seconds_per_step": self.seconds_per_step, "seconds": self.seconds, "loss": self.loss}
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DeviceDeclined:
    device: str
    round: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceBusy:
    """It works for another run; it keeps the task and takes it up when it is free."""

    device: str
    round: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimerExpired:
    round: int
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class RoundMerged:
    round: int  # the last one completed: later than the one in hand when the next needed no device, earlier when it
    at: float  # was not merged, because its answers say that the run can end with the model they were asked about
    done: bool = False  # the run ends here: its last model is judged, or an earlier one is good enough


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The shell was restarted, perhaps under other rules: what is in hand has to be done again."""

    at: float


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A gateway: this round is in hand where it answers to, whatever has become of the last one here.

    One behind the last round means that the run has ended there.
    """

    round: int
    at: float


# ── actions: do them ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Invite:
    round: int
    devices: tuple[str, ...]
    attempt: int  # the opening: a device that answered another opening of this round is asked anew


@dataclass(frozen=True, slots=True)
class SetTimer:
    round: int
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MergeRound:
    round: int
    devices: tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class AcceptAnswer:
    """The answer counts."""

    device: str
    round: int


@dataclass(frozen=True, slots=True)
class IgnoreAnswer:
    device: str
    round: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class AcceptLateAnswer:
    """The answer came after its round was closed; the run keeps such."""

    device: str
    round: int


@dataclass(frozen=True, slots=True)
class Abandon:
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    rounds: int


Event: TypeAlias = (
    DeviceJoined
    | DeviceLost
    | DeviceAnswered
    | DeviceDeclined
    | DeviceBusy
    | TimerExpired
    | RoundMerged
    | RunResumed
    | Overtaken
)
Verdict: TypeAlias = AcceptAnswer | AcceptLateAnswer | IgnoreAnswer
Action: TypeAlias = Invite | SetTimer | MergeRound | AcceptAnswer | IgnoreAnswer | AcceptLateAnswer | Abandon | Finish
Step: TypeAlias = tuple[Rounds, tuple[Action, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: Rounds, event: Event) -> Step:  # noqa: PLR0911, C901  one event, one line
    """The state after this event, and what is to be done about it."""
    match event:
        case DeviceAnswered():
            return _answered(s, event)
        case DeviceDeclined(device, round):
            return _declined(s, device, round)
        case DeviceBusy(device, round):
            return _busy(s, device, round)
        case RunResumed():
            return _resumed(s)
        case _ if s.phase == "finished":
            return s, ()
        case DeviceJoined(device, samples=samples):
            known = knowing(s, device, samples=samples)
            return _joined(replace(s, present=s.present | {device}, known=known), device)
        case DeviceLost(device):
            return _lost(s, device)
        case TimerExpired(round, attempt) if (round, attempt) == (s.round, s.attempt):
            return _expired(s)
        case Overtaken(round) if round > s.round:
            return _overtaken(s, round)
        case RoundMerged(round, done=done) if s.phase == "merging" and (done or round >= s.round):
            return _merged(s, round, done)
        case _:
            return s, ()


def reopened(s: Rounds) -> Rounds:
    """The same round, to be asked anew when it is resumed: its model will not be the one that was handed out."""
    return cleared(s) if s.phase == "open" else s


def continued(s: Rounds) -> Rounds:
    """The same before it was told that its last round is merged: under other rules that may not be the last."""
    return replace(s, phase="merging", round=s.round + s.unmerged, unmerged=False) if s.phase == "finished" else s


def outstanding(s: Rounds) -> tuple[str, ...]:
    """Who was asked and may still answer, in the order they were asked."""
    asked = s.asked if s.phase == "open" else ()
    return tuple(d for d in asked if d in s.present and d not in s.answered and d not in s.declined)


def waiting(s: Rounds) -> str:
    """Why the coordinator waits, in one line for a human."""
    what = WHAT.get(s.rules.schedule.purpose(s.round)) or f"round {s.round}"
    have = f"{what} needs {_needed(s)} devices, have {len(s.present)}"
    match s.phase:
        case "starting" if s.rules.start_with is None:
            return f"{have}; {s.rules.deadline:g} s after the first one {s.rules.quorum} do"
        case "starting" | "gathering":
            return have
        case "open":
            refusing = s.declined - s.busy
            declined = f", {len(refusing)} declined ({some(sorted(refusing))})" if refusing else ""
            return f"{what}: {len(s.answered)} of {len(s.asked)} answered{declined}; {_waiting_for(s)}"
        case "merging":
            return f"{what}: merging {len(s.answered)} answers"
        case "finished":
            return f"finished after {s.round} rounds"


def _waiting_for(s: Rounds) -> str:
    names = sorted(outstanding(s))
    elsewhere = sorted(s.busy.intersection(names))
    if names:
        return f"waiting for {some(names)}" + (f" ({some(elsewhere)}: another run first)" if elsewhere else "")
    if _hopeless(s) and not _only_evaluates(s):
        return f"no device is left to ask, all are asked again when its {s.rules.deadline:g} s are up"
    return "no device is left to ask, waiting for devices to come (back)"


# ── before a round ───────────────────────────────────────────────────────────────────────────────────────────


def _joined(s: Rounds, device: str) -> Step:
    match s.phase:
        case "starting" | "gathering" if len(s.present) >= _needed(s):
            return _open(s)
        case "starting" if s.rules.start_with is None and s.attempt == 0:
            s = replace(s, attempt=1)
            return s, (_timer(s),)  # patience is counted from the first device
        case "open" if device in outstanding(s):
            return s, _invitation(s, (device,))  # it may have lost the task; if not, it sends its answer again
        case "open" if device not in s.asked and _lacks_devices(s):
            return _ask(s, (device,))
        case _:
            return s, ()


def _needed(s: Rounds) -> int:
    if _only_evaluates(s):
        return 0
    if s.phase == "starting":
        return s.rules.size if s.rules.start_with is None else s.rules.start_with
    return s.rules.quorum


def _lacks_devices(s: Rounds) -> bool:
    """Whether a newcomer is wanted: later than the first answer only if there would be no quorum without it."""
    expected = len(s.answered) + len(outstanding(s))
    return expected < (s.rules.quorum if s.answered else s.rules.cohort)


def gather(s: Rounds) -> Step:
    """Open the round, if there are devices enough for it."""
    s = cleared(s)
    return _open(s) if len(s.present) >= _needed(s) else (s, ())


def cleared(s: Rounds) -> Rounds:
    """Return the same round before any device was asked."""
    nobody, nothing = frozenset[str](), dict[str, Work]()
    s = replace(s, asked=(), answered=nobody, declined=nobody, busy=nobody, work=nothing, later=nobody)
    return replace(s, phase="gathering")


def _open(s: Rounds) -> Step:
    if s.draw != s.rules.draw(s.round):
        s = replace(s, draw=s.rules.draw(s.round), knew=s.known)
    purpose = s.rules.schedule.purpose(s.round)
    asked = order(s, s.present)[: s.rules.size if purpose != "describe" else None]  # their data are the whole fleet's
    s = replace(s, phase="open", attempt=s.attempt + 1, opening=s.attempt + 1, purpose=purpose, extended=0, asked=asked)
    return s, (*_invitation(s, asked), _timer(s))


def _resumed(s: Rounds) -> Step:  # noqa: PLR0911  one phase, one line or two
    if s.phase in ("gathering", "open") and not s.rules.schedule.follows(s.round - 1):
        return finish(s, s.round - 1)  # fewer rounds are wanted now than are done
    if s.phase in ("open", "merging") and s.purpose != s.rules.schedule.purpose(s.round):
        return gather(s)  # what was answered is not what is asked for now
    match s.phase:
        case "starting" | "gathering" if len(s.present) >= _needed(s):
            return _open(s)
        case "starting" if s.rules.start_with is None and (s.present or s.attempt):  # patience that had begun goes on
            s = replace(s, attempt=max(1, s.attempt))
            return s, (_timer(s),)
        case "open" if _complete(s):
            return _close(s)
        case "open":
            return s, (*_invitation(s, outstanding(s)), _timer(s))
        case "merging":
            return s, (_merge(s),)
        case "finished":
            return s, (Finish(s.round),)
        case _:
            return s, ()


# ── an open round ────────────────────────────────────────────────────────────────────────────────────────────


def verdict(s: Rounds, device: str, round: int) -> Verdict:
    """What would become of an answer that came now."""
    match _objection(s, device, round):
        case None:
            return AcceptAnswer(device, round)
        case "late" if s.rules.late != "drop" and s.owed.get(device) == round and not _only_evaluates(s):
            return AcceptLateAnswer(device, round)
        case reason:
            return IgnoreAnswer(device, round, reason)


def _answered(s: Rounds, answer: DeviceAnswered) -> Step:
    device, news = answer.device, answer.news
    match verdict(s, device, answer.round):
        case AcceptAnswer() as accept:
            known = knowing(s, device, **news) if news else s.known
            s, actions = _settle(replace(s, answered=s.answered | {device}, known=known))
            return s, (accept, *actions)
        case AcceptLateAnswer() as late:
            return replace(s, owed={d: r for d, r in s.owed.items() if d != device}), (late,)
        case ignore:
            return s, (ignore,)


def _declined(s: Rounds, device: str, round: int) -> Step:
    reason = _objection(s, device, round)
    if reason is None and device in s.declined:
        reason = "duplicate"
    if reason is not None:
        return s, (IgnoreAnswer(device, round, reason),)
    return _replace_one(replace(s, declined=s.declined | {device}))


def _busy(s: Rounds, device: str, round: int) -> Step:
    """Ask a spare instead, if there is one; otherwise the device is waited for until it is free."""
    reason = _objection(s, device, round)
    if reason is None and (device in s.busy or device in s.declined):
        reason = "duplicate"
    if reason is not None:
        return s, (IgnoreAnswer(device, round, reason),)
    s = replace(s, busy=s.busy | {device})
    spare = _spares(s, 1)
    return _ask(replace(s, declined=s.declined | {device}), spare) if spare else (s, ())


def _lost(s: Rounds, device: str) -> Step:
    missed = device in outstanding(s)
    s = replace(s, present=s.present - {device})
    return _replace_one(s) if missed else (s, ())


def _objection(s: Rounds, device: str, round: int) -> Reason | None:
    """Why a word of this device about this round cannot be used; None if it can."""
    if s.phase == "finished":
        return "finished"
    if round > s.round:
        return "future"
    if s.counted.get(device) == round:
        return "duplicate"  # its receipt was lost: not late, it did count
    if round < s.round or s.phase == "merging":
        return "late"
    if device not in s.asked:
        return "not invited"
    return "duplicate" if device in s.answered else None


def _replace_one(s: Rounds) -> Step:
    """Ask a spare in place of a device that will not answer, or see whether the round is complete without it.

    One that comes and goes has its place taken once: who was asked for it is still there.
    """
    expected = len(s.answered) + len(outstanding(s))
    spare = _spares(s, 1) if expected < s.rules.size else ()
    return _ask(s, spare) if spare else _settle(s)


def _settle(s: Rounds) -> Step:
    return _close(s) if _complete(s) else (s, ())


def _complete(s: Rounds) -> bool:
    if _only_evaluates(s):  # a device that is away may be back before its time is up
        return bool(s.asked) and s.answered | s.declined >= frozenset(s.asked)
    # Without over-selection a round waits for all it asked: who counts must not depend on who was faster.
    spare = s.rules.over_select > 1 or bool(s.busy & s.declined)
    fast = spare and s.purpose == "train" and len(s.answered) >= s.rules.cohort
    return fast or (len(s.answered) >= s.rules.quorum and not outstanding(s))


def _close(s: Rounds) -> Step:
    if s.rules.schedule.purpose(s.round) != "train":  # nothing is merged
        s = replace(s, phase="merging")
        return s, (_merge(s),)
    counted = {**s.counted, **dict.fromkeys(sorted(s.answered), s.round)}
    owed = {**s.owed, **{d: s.round for d in s.asked if d not in s.answered}}
    s = replace(s, phase="merging", counted=counted, owed=owed, known=_known_at_the_end(s))
    return s, (_merge(s),)


def _known_at_the_end(s: Rounds) -> dict[str, Candidate]:
    """What a round that is closed has shown of the devices it asked."""
    known = {**s.known}
    for device in s.asked:
        one = known.get(device, Candidate(device))
        failed = device not in s.answered
        known[device] = replace(one, failures=one.failures + 1) if failed else replace(one, counted=s.round, failures=0)
    return known


def _expired(s: Rounds) -> Step:
    match s.phase:
        case "starting" if s.rules.start_with is None:
            return gather(s)
        case "open" if len(s.answered) >= s.rules.quorum or _only_evaluates(s):
            return _close(s)
        case "open" if _elsewhere(s) or (s.extended < s.rules.attempts and not _hopeless(s)):
            return _extend(s)
        case "open":
            refusing = s.declined - s.busy
            declined = f", {len(refusing)} declined" if refusing else ""
            reason = f"{len(s.answered)} of {len(s.asked)} answered{declined}, quorum is {s.rules.quorum}"
            s, actions = gather(s)
            return s, (Abandon(s.round, reason), *actions)
        case _:
            return s, ()


def _extend(s: Rounds) -> Step:
    """Keep what was answered; ask the silent again, and a spare for every answer that is missing."""
    silent, spares = outstanding(s), _spares(s, s.rules.size - len(s.answered))
    extended = s.extended + (not _elsewhere(s))
    busy = s.busy & s.declined  # the others are asked now, and say so again if they still are
    s = replace(s, attempt=s.attempt + 1, extended=extended, busy=busy, asked=(*s.asked, *spares))
    return s, (*_invitation(s, (*silent, *spares)), _timer(s))


def _elsewhere(s: Rounds) -> bool:
    """Return whether a device that is waited for works for another run: no reason to give the round up."""
    return not s.busy.isdisjoint(outstanding(s))


def _hopeless(s: Rounds) -> bool:
    """Return whether all present devices have answered or declined: more time would change nothing."""
    return s.present <= s.answered | s.declined and bool(s.declined - s.busy)


def _merged(s: Rounds, round: int, done: bool) -> Step:
    s = replace(s, unmerged=done and round < s.round and s.purpose == "train")
    if done or s.purpose == "evaluate" or not s.rules.schedule.follows(round):
        return finish(s, round)
    return gather(replace(s, round=round + 1))


def _overtaken(s: Rounds, round: int) -> Step:
    """Drop the answers to the round in hand."""
    reason = f"round {round} has begun" if round <= s.rules.rounds else "the run has ended"
    left = (Abandon(s.round, reason),) if s.phase == "open" else ()
    s, actions = gather(replace(s, round=round)) if round <= s.rules.rounds else finish(s, s.round)
    return s, (*left, *actions)


def finish(s: Rounds, round: int) -> Step:
    """End the run: no round comes after it; drop what devices have in hand."""
    s = replace(s, phase="finished", round=round, purpose=s.rules.schedule.purpose(round), work={})
    return s, (Finish(round),)


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _only_evaluates(s: Rounds) -> bool:
    return s.rules.schedule.purpose(s.round) == "evaluate"


def _spares(s: Rounds, count: int) -> tuple[str, ...]:
    """The next ones in the order the round was drawn (drawn again if the fleet has changed since)."""
    drawn_now = order(s, s.present.union(s.asked))
    return tuple(d for d in drawn_now if d not in s.asked)[:count]


def order(s: Rounds, fleet: frozenset[str]) -> tuple[str, ...]:
    """In which order these devices are asked, by what was known of them when the draw was made."""
    candidates = tuple(s.knew.get(d) or s.known.get(d) or Candidate(d) for d in sorted(fleet))
    return drawn(selection(s.rules.selection), s.rules.draw(s.round), s.rules.seed, candidates)


def knowing(s: Rounds, device: str, **news: Any) -> dict[str, Candidate]:
    """What is known of all devices, with this news of one."""
    return {**s.known, device: replace(s.known.get(device, Candidate(device)), **news)}


def _ask(s: Rounds, devices: tuple[str, ...]) -> Step:
    return replace(s, asked=(*s.asked, *devices)), _invitation(s, devices)


def _invitation(s: Rounds, devices: tuple[str, ...]) -> tuple[Action, ...]:
    return (Invite(s.round, devices, s.opening),) if devices else ()


def _merge(s: Rounds) -> MergeRound:
    return MergeRound(s.round, tuple(sorted(s.answered)))


def _timer(s: Rounds) -> SetTimer:
    return SetTimer(s.round, s.attempt, s.rules.deadline)


def some(names: list[str], most: int = 5) -> str:
    """The first few of these, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
