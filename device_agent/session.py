"""The life of one device: a pure function, `step(state, event) -> state, actions`.

           Tasked             ModelArrived             Trained             Receipted
    idle ──────────▶ fetching ─────────────▶ training ─────────▶ sending ───────────────▶ idle
      │                 │                     ▲   │                 │  accepted, duplicate: Commit, Forget
      └─ model at hand ─┼─────────────────────┘   │                 │  late, refused: Forget
                        │                         │                 │
                        └── failed: Decline ──────┘                 └── job ended: Forget
                            round over, job ended: CancelTraining

A newer task clears the hands (CancelTraining, Forget) and starts at `fetching`, or at `training` if its model is there.
Being online is independent of all this: a device trains on while it is offline, and on its return announces
itself and asks or sends again whatever is open. From anywhere, Stopped or a fatal Refused ends in `stopped`.

House rules
  1. `step` is the only door. It changes nothing: it gives back the next state and what the shell shall do.
  2. One task in hand and one training at a time. CancelTraining is final: the shell lets no result of it through.
  3. An update is kept until the coordinator's receipt, a newer task or the end of its job. A PUBACK is no receipt.
  4. Nothing is sent while offline; everything that is sent may be sent again.
  5. A round is committed at most once, and only on the coordinator's word that it took the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["idle", "fetching", "training", "sending", "stopped"]
Verdict: TypeAlias = Literal["accepted", "duplicate", "late", "refused"]


# ── events: they happened ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Connected:
    pass


@dataclass(frozen=True, slots=True)
class Disconnected:
    pass


@dataclass(frozen=True, slots=True)
class Tasked:
    job: str
    round: int
    model: str
    attempt: str = ""  # another attempt at a round means: what was answered before was dropped
    overtime: bool = False  # an answer is welcome even when the round is over (late = discount or memory)
    counted: int = 0  # the last round this device's answer was merged in: stands in for a receipt that was lost


@dataclass(frozen=True, slots=True)
class ModelArrived:
    model: str


@dataclass(frozen=True, slots=True)
class Trained:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Receipted:
    round: int
    digest: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Resend:
    digest: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    code: str
    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class StateSeen:
    job: str
    round: int
    phase: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    job: str


@dataclass(frozen=True, slots=True)
class Stopped:
    pass


# ── actions: do them ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Announce:
    pass


@dataclass(frozen=True, slots=True)
class Fetch:
    model: str


@dataclass(frozen=True, slots=True)
class Train:
    round: int
    model: str


@dataclass(frozen=True, slots=True)
class CancelTraining:
    round: int


@dataclass(frozen=True, slots=True)
class Send:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class SendChunks:
    digest: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    round: int


@dataclass(frozen=True, slots=True)
class Forget:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Decline:
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Quit:
    reason: str
    code: str


@dataclass(frozen=True, slots=True)
class Note:
    text: str


Event: TypeAlias = (
    Connected
    | Disconnected
    | Tasked
    | ModelArrived
    | Trained
    | TrainingFailed
    | Receipted
    | Resend
    | Refused
    | StateSeen
    | JobEnded
    | Stopped
)
Action: TypeAlias = (
    Announce | Fetch | Train | CancelTraining | Send | SendChunks | Commit | Forget | Decline | Quit | Note
)


# ── the state ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Session:
    """Everything the machine knows. A spooled update starts it as `Session("sending", task, digest)`."""

    phase: Phase = "idle"
    task: Tasked | None = None  # in hand, unless idle
    digest: str = ""  # of the update that is held, while sending
    online: bool = False
    model: str | None = None  # the last one that arrived
    answered: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # job: last round and attempt receipted
    committed: Mapping[str, int] = field(default_factory=dict)  # job: last round committed


Step: TypeAlias = tuple[Session, tuple[Action, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: Session, event: Event) -> Step:  # noqa: C901, PLR0911, PLR0912  one event, one line
    """The state after this event, and what is to be done about it."""
    if s.phase == "stopped":
        return s, ()
    match event:
        case Connected():
            return _connected(replace(s, online=True))
        case Disconnected():
            return replace(s, online=False), ()
        case Tasked():
            return _tasked(s, event)
        case ModelArrived(model):
            return _arrived(replace(s, model=model))
        case Trained(round, digest):
            return _trained(s, round, digest)
        case TrainingFailed(round, reason):
            return _failed(s, round, reason)
        case Receipted(round, digest, verdict):
            return _receipted(s, round, digest, verdict)
        case Resend(digest, missing):
            held = s.phase == "sending" and s.digest == digest
            return s, _online(s, SendChunks(digest, missing)) if held else ()
        case StateSeen(job, round, phase):
            return _seen(s, job, round, phase)
        case JobEnded(job):
            return _ended(s, job)
        case Refused(code, reason, fatal=True):
            return _quit(s, reason, code)
        case Refused(code, reason):
            return s, (Note(f"refused: {reason} ({code})"),)
        case Stopped():
            return _quit(s, "stopped", "stopped")


def _connected(s: Session) -> Step:
    return s, (Announce(), *_reminder(s))


def _reminder(s: Session) -> tuple[Action, ...]:
    """What the other side has to hear, perhaps again, for the task in hand to go on."""
    match s:
        case Session("fetching", Tasked(model=model), online=True):
            return (Fetch(model),)
        case Session("sending", Tasked(round=round), digest, online=True):
            return (Send(round, digest),)
        case _:
            return ()


def _tasked(s: Session, new: Tasked) -> Step:
    answered = s.answered.get(new.job, (0, ""))
    match s.task:
        case Tasked(new.job, new.round, new.model):
            s = replace(s, task=new)  # the same work, perhaps under a new name
            return s, _reminder(s)
        case Tasked(new.job, round) if new.round < round:
            return s, (Note(f"round {new.round} is older than round {round} in hand"),)
        case _ if new.round < answered[0] or (new.round, new.attempt) == answered:
            return s, (Note(f"round {new.round} is already answered"),)
        case Tasked(new.job, new.counted) if s.phase == "sending":
            s, receipt = _receipted(s, new.counted, s.digest, "duplicate")
            begun, actions = _begin(s, new)
            return begun, (*receipt, *actions)
        case _:
            begun, actions = _begin(_rest(s), new)
            return begun, (*_cleared(s), *actions)


def _begin(s: Session, task: Tasked) -> Step:
    if task.model == s.model:
        return replace(s, phase="training", task=task), (Train(task.round, task.model),)
    s = replace(s, phase="fetching", task=task)
    return s, _reminder(s)


def _arrived(s: Session) -> Step:
    match s:
        case Session("fetching", Tasked(model=model) as task) if model == s.model:
            return _begin(s, task)
        case _:
            return s, ()


def _trained(s: Session, round: int, digest: str) -> Step:
    match s:
        case Session("training", Tasked(round=mine)) if mine == round:
            s = replace(s, phase="sending", digest=digest)
            return s, _reminder(s)
        case _:
            return s, (Note(f"trained round {round}, which is no longer in hand"),)


def _failed(s: Session, round: int, reason: str) -> Step:
    match s:
        case Session("fetching" | "training", Tasked(round=mine)) if mine == round:
            # Offline nobody can be told, and nobody needs to be: whoever comes back is asked again.
            told = _online(s, Decline(round, reason))
            return _rest(s), (Note(f"round {round} failed: {reason}"), *told)
        case _:
            return s, ()


def _receipted(s: Session, round: int, digest: str, verdict: Verdict) -> Step:
    match s:
        case Session("sending", Tasked(job, mine, attempt=attempt)) if (mine, s.digest) == (round, digest):
            counts = verdict in ("accepted", "duplicate") and s.committed.get(job, 0) < round
            s = replace(_rest(s), answered={**s.answered, job: (round, attempt)})
            if not counts:
                return s, (Forget(round, digest),)
            return replace(s, committed={**s.committed, job: round}), (Commit(round), Forget(round, digest))
        case _:
            return s, ()  # a receipt that came twice, or for an update that was given up


def _seen(s: Session, job: str, round: int, phase: str) -> Step:
    if phase == "finished":
        return _ended(s, job)
    match s:
        case Session("fetching" | "training", Tasked(mine_job, mine)) if mine_job == job:
            over = (round, phase == "merging") > (mine, False)
            # Overtime needs the model at hand: the one of a closed round can no longer be fetched.
            overtime = s.phase == "training" and s.task is not None and s.task.overtime
            return _give_up(s, f"round {mine} is over") if over and not overtime else (s, ())
        case _:
            return s, ()


def _ended(s: Session, job: str) -> Step:
    mine = s.task is not None and s.task.job == job
    return _give_up(s, f"job {job} has ended") if mine else (s, ())


def _give_up(s: Session, why: str) -> Step:
    return _rest(s), (*_cleared(s), Note(why))


def _quit(s: Session, reason: str, code: str) -> Step:
    stopped = _cleared(s) if s.phase == "training" else ()  # an update that is held stays in the spool
    return replace(s, phase="stopped"), (*stopped, Quit(reason, code))


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _rest(s: Session) -> Session:
    return replace(s, phase="idle", task=None, digest="")


def _cleared(s: Session) -> tuple[Action, ...]:
    """What it takes to have nothing in hand."""
    match s:
        case Session("training", Tasked(round=round)):
            return (CancelTraining(round),)
        case Session("sending", Tasked(round=round), digest):
            return (Forget(round, digest),)
        case _:
            return ()


def _online(s: Session, *actions: Action) -> tuple[Action, ...]:
    return actions if s.online else ()
