"""When rounds open, whom they ask and when they close: a pure function, `step(state, event) -> state, actions`.

    starting  ── Joined, Expired, Resumed ───────────────────▶ open       start_with present; without it: all that
                                                                          it asks, or a quorum after a deadline
    starting  ── Expired ────────────────────────────────────▶ gathering  a deadline has passed, and there is no quorum
    gathering ── Joined, Resumed ────────────────────────────▶ open       a quorum is present
    open      ── Answered, Declined, Lost, Expired, Resumed ─▶ merging    all have answered, or the cohort of an
                                                                          over-selection, or a quorum at the deadline
    open      ── Expired ────────────────────────────────────▶ gathering  too few, too often, too few present: Abandon
    merging   ── Merged ─────────────────────────────────────▶ gathering  the next round, without a quorum
    merging   ── Merged ─────────────────────────────────────▶ open       the next round
    merging   ── Merged ─────────────────────────────────────▶ finished   it was the last one
    gathering ── Resumed ────────────────────────────────────▶ finished   fewer rounds are wanted now than are done
    open      ── Resumed ────────────────────────────────────▶ finished   the same

A deadline with too few answers leaves a round open: the silent are asked again, and spares. The picture is checked
against what the machine does (tests/coordinator/test_pictures.py).

Only the first round waits for a fleet to come together. Every other one opens at once with whoever is there, if that is
a quorum: a device that is away is not waited for. One that was away for a moment only is asked when it is back, as long
as the round lacks devices and nobody has answered it yet.

House rules
  1. `step` is the only door. It changes nothing: it gives back the next state and what the shell shall do.
  2. Ids and numbers only. No decision reads a clock (`at` and `reason` are there for the story), and none depends on
     the order of a set: the same events give the same actions, so a journal of events is the whole truth.
  3. One timer at a time, named by round and attempt. Attempts only grow, so an older timer means nothing.
  4. Whoever is listed in a Merge was asked, has answered and counts once; there is one Merge for a round.
  5. Nothing a device says is an error. Every answer gets a verdict: Accept, Late, or Ignore with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Literal, TypeAlias

from edgefl.selection.base import Candidate, drawn
from edgefl.selection.registry import selection

Phase: TypeAlias = Literal["starting", "gathering", "open", "merging", "finished"]
Reason: TypeAlias = Literal["duplicate", "late", "not invited", "future", "finished"]


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

    def __post_init__(self) -> None:
        if not 1 <= self.quorum <= self.cohort:
            raise ValueError(f"quorum {self.quorum} must be at least 1 and at most the cohort, {self.cohort}")
        if self.start_with is not None and self.start_with < self.quorum:
            raise ValueError(f"start_with {self.start_with} is smaller than quorum {self.quorum}")
        if self.rounds < 1 or self.deadline <= 0 or self.over_select < 1 or self.attempts < 0:
            raise ValueError(f"needs rounds >= 1, deadline > 0, over_select >= 1, attempts >= 0: {self}")

    def draw(self, round: int) -> int:
        """The number of the draw that gives a round its devices; rounds that share it share them."""
        return 1 + (round - 1) // self.cohort_rounds

    @property
    def size(self) -> int:
        """How many devices a round asks."""
        return ceil(self.cohort * self.over_select - 1e-9)  # 10 * 1.1 is a little more than 11


@dataclass(frozen=True, slots=True)
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
    extended: int = 0  # how often the deadline of this opening was, though nobody was busy elsewhere
    counted: Mapping[str, int] = field(default_factory=dict)  # the last round each device's answer was merged in
    owed: Mapping[str, int] = field(default_factory=dict)  # the last round that closed without each device's answer
    known: Mapping[str, Candidate] = field(default_factory=dict)  # what the next draw will know of each device
    draw: int = 0  # the number of the last one
    knew: Mapping[str, Candidate] = field(default_factory=dict)  # what it knew: all its rounds ask in the same order


# ── events: they happened ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Joined:
    device: str
    at: float
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    device: str
    at: float


@dataclass(frozen=True, slots=True)
class Answered:
    device: str
    round: int
    at: float
    seconds_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    device: str
    round: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Busy:
    """It works for another run; it keeps the task and takes it up when it is free."""

    device: str
    round: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    round: int
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class Merged:
    round: int  # the last one completed: later than the one in hand when the next needed no device
    at: float
    done: bool = False  # stop early: the target is reached


@dataclass(frozen=True, slots=True)
class Resumed:
    """The shell was restarted, perhaps under other rules: what is in hand has to be done again."""

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
class Merge:
    round: int
    devices: tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer counts."""

    device: str
    round: int


@dataclass(frozen=True, slots=True)
class Ignore:
    device: str
    round: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Late:
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


Event: TypeAlias = Joined | Lost | Answered | Declined | Busy | Expired | Merged | Resumed
Verdict: TypeAlias = Accept | Late | Ignore
Action: TypeAlias = Invite | SetTimer | Merge | Accept | Ignore | Late | Abandon | Finish
Step: TypeAlias = tuple[Rounds, tuple[Action, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: Rounds, event: Event) -> Step:  # noqa: PLR0911  one event, one line
    """The state after this event, and what is to be done about it."""
    match event:
        case Answered(device, round, seconds_per_step=pace):
            return _answered(s, device, round, pace)
        case Declined(device, round):
            return _declined(s, device, round)
        case Busy(device, round):
            return _busy(s, device, round)
        case Resumed():
            return _resumed(s)
        case _ if s.phase == "finished":
            return s, ()
        case Joined(device, samples=samples):
            known = _knowing(s, device, samples=samples)
            return _joined(replace(s, present=s.present | {device}, known=known), device)
        case Lost(device):
            return _lost(s, device)
        case Expired(round, attempt) if (round, attempt) == (s.round, s.attempt):
            return _expired(s)
        case Merged(round, done=done) if s.phase == "merging" and round >= s.round:
            return _merged(s, round, done)
        case _:
            return s, ()


def reopened(s: Rounds) -> Rounds:
    """The same round, to be asked anew when it is resumed: its model will not be the one that was handed out."""
    return _cleared(s) if s.phase == "open" else s


def outstanding(s: Rounds) -> tuple[str, ...]:
    """Who was asked and may still answer, in the order they were asked."""
    asked = s.asked if s.phase == "open" else ()
    return tuple(d for d in asked if d in s.present and d not in s.answered and d not in s.declined)


def waiting(s: Rounds) -> str:
    """Why the coordinator waits, in one line for a human."""
    have = f"round {s.round} needs {_needed(s)} devices, have {len(s.present)}"
    match s.phase:
        case "starting" if s.rules.start_with is None:
            return f"{have}; {s.rules.deadline:g} s after the first one {s.rules.quorum} do"
        case "starting" | "gathering":
            return have
        case "open":
            refusing = s.declined - s.busy
            declined = f", {len(refusing)} declined ({_some(sorted(refusing))})" if refusing else ""
            return f"round {s.round}: {len(s.answered)} of {len(s.asked)} answered{declined}; {_waiting_for(s)}"
        case "merging":
            return f"round {s.round}: merging {len(s.answered)} answers"
        case "finished":
            return f"finished after {s.round} rounds"


def _waiting_for(s: Rounds) -> str:
    names = sorted(outstanding(s))
    elsewhere = sorted(s.busy.intersection(names))
    if names:
        return f"waiting for {_some(names)}" + (f" ({_some(elsewhere)}: another run first)" if elsewhere else "")
    if _hopeless(s):
        return f"nobody is left to ask, all are asked again when its {s.rules.deadline:g} s are up"
    return "nobody is left to ask, waiting for devices to come (back)"


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
    if s.phase == "starting":
        return s.rules.size if s.rules.start_with is None else s.rules.start_with
    return s.rules.quorum


def _lacks_devices(s: Rounds) -> bool:
    """Whether a newcomer is wanted: later than the first answer only if there would be no quorum without it."""
    expected = len(s.answered) + len(outstanding(s))
    return expected < (s.rules.quorum if s.answered else s.rules.cohort)


def _gather(s: Rounds) -> Step:
    s = _cleared(s)
    return _open(s) if len(s.present) >= _needed(s) else (s, ())


def _cleared(s: Rounds) -> Rounds:
    return replace(s, phase="gathering", asked=(), answered=frozenset(), declined=frozenset(), busy=frozenset())


def _open(s: Rounds) -> Step:
    if s.draw != s.rules.draw(s.round):
        s = replace(s, draw=s.rules.draw(s.round), knew=s.known)
    asked = _order(s, s.present)[: s.rules.size]
    s = replace(s, phase="open", attempt=s.attempt + 1, opening=s.attempt + 1, extended=0, asked=asked)
    return s, (*_invitation(s, asked), _timer(s))


def _resumed(s: Rounds) -> Step:  # noqa: PLR0911  one phase, one line or two
    if s.phase in ("gathering", "open") and s.round > s.rules.rounds:
        return _finish(s, s.round - 1)  # fewer rounds are wanted now than are done
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
            return Accept(device, round)
        case "late" if s.rules.late != "drop" and s.owed.get(device) == round:
            return Late(device, round)
        case reason:
            return Ignore(device, round, reason)


def _answered(s: Rounds, device: str, round: int, pace: float | None) -> Step:
    match verdict(s, device, round):
        case Accept() as accept:
            known = s.known if pace is None else _knowing(s, device, seconds_per_step=pace)
            s, actions = _settle(replace(s, answered=s.answered | {device}, known=known))
            return s, (accept, *actions)
        case Late() as late:
            return replace(s, owed={d: r for d, r in s.owed.items() if d != device}), (late,)
        case ignore:
            return s, (ignore,)


def _declined(s: Rounds, device: str, round: int) -> Step:
    reason = _objection(s, device, round)
    if reason is None and device in s.declined:
        reason = "duplicate"
    if reason is not None:
        return s, (Ignore(device, round, reason),)
    return _replace_one(replace(s, declined=s.declined | {device}))


def _busy(s: Rounds, device: str, round: int) -> Step:
    """Ask a spare instead, if there is one; otherwise the device is waited for until it is free."""
    reason = _objection(s, device, round)
    if reason is None and (device in s.busy or device in s.declined):
        reason = "duplicate"
    if reason is not None:
        return s, (Ignore(device, round, reason),)
    s = replace(s, busy=s.busy | {device})
    spare = _spares(s, 1)
    return _ask(replace(s, declined=s.declined | {device}), spare) if spare else (s, ())


def _lost(s: Rounds, device: str) -> Step:
    missed = device in outstanding(s)
    s = replace(s, present=s.present - {device})
    return _replace_one(s) if missed else (s, ())


def _objection(s: Rounds, device: str, round: int) -> Reason | None:
    """Why a word of this device about this round cannot be used; None if it can."""
    grounds: tuple[tuple[Reason, bool], ...] = (
        ("finished", s.phase == "finished"),
        ("future", round > s.round),
        ("duplicate", s.counted.get(device) == round),  # its receipt was lost: not late, it did count
        ("late", round < s.round or s.phase == "merging"),
        ("not invited", device not in s.asked),
        ("duplicate", device in s.answered),
    )
    return next((reason for reason, holds in grounds if holds), None)


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
    # Without over-selection a round waits for all it asked: who counts must not depend on who was faster.
    spare = s.rules.over_select > 1 or bool(s.busy & s.declined)
    fast = spare and len(s.answered) >= s.rules.cohort
    return fast or (len(s.answered) >= s.rules.quorum and not outstanding(s))


def _close(s: Rounds) -> Step:
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
            return _gather(s)
        case "open" if len(s.answered) >= s.rules.quorum:
            return _close(s)
        case "open" if _elsewhere(s) or (s.extended < s.rules.attempts and not _hopeless(s)):
            return _extend(s)
        case "open":
            refusing = s.declined - s.busy
            declined = f", {len(refusing)} declined" if refusing else ""
            reason = f"{len(s.answered)} of {len(s.asked)} answered{declined}, quorum is {s.rules.quorum}"
            s, actions = _gather(s)
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
    """Whether somebody who is waited for works for another run: that is no reason to give the round up."""
    return not s.busy.isdisjoint(outstanding(s))


def _hopeless(s: Rounds) -> bool:
    """Whether whoever is here has answered or declined: more time for this opening would change nothing."""
    return s.present <= s.answered | s.declined and bool(s.declined - s.busy)


def _merged(s: Rounds, round: int, done: bool) -> Step:
    if done or round >= s.rules.rounds:
        return _finish(s, round)
    return _gather(replace(s, round=round + 1))


def _finish(s: Rounds, round: int) -> Step:
    return replace(s, phase="finished", round=round), (Finish(round),)


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _spares(s: Rounds, count: int) -> tuple[str, ...]:
    """The next ones in the order the round was drawn (drawn again if the fleet has changed since)."""
    order = _order(s, s.present.union(s.asked))
    return tuple(d for d in order if d not in s.asked)[:count]


def _order(s: Rounds, fleet: frozenset[str]) -> tuple[str, ...]:
    """In which order these devices are asked, by what was known of them when the draw was made."""
    candidates = tuple(s.knew.get(d) or s.known.get(d) or Candidate(d) for d in sorted(fleet))
    return drawn(selection(s.rules.selection), s.rules.draw(s.round), s.rules.seed, candidates)


def _knowing(s: Rounds, device: str, **news: Any) -> dict[str, Candidate]:
    return {**s.known, device: replace(s.known.get(device, Candidate(device)), **news)}


def _ask(s: Rounds, devices: tuple[str, ...]) -> Step:
    return replace(s, asked=(*s.asked, *devices)), _invitation(s, devices)


def _invitation(s: Rounds, devices: tuple[str, ...]) -> tuple[Action, ...]:
    return (Invite(s.round, devices, s.opening),) if devices else ()


def _merge(s: Rounds) -> Merge:
    return Merge(s.round, tuple(sorted(s.answered)))


def _timer(s: Rounds) -> SetTimer:
    return SetTimer(s.round, s.attempt, s.rules.deadline)


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
