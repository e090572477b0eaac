"""The life of one device: a pure function, `step(state, event) -> state, actions`.

           Tasked             ModelArrived             Trained
    idle ──────────▶ fetching ─────────────▶ training ─────────▶ idle, and an update more is held
      │                 │                     ▲   │
      └─ model at hand ─┼─────────────────────┘   │
                        └── failed: Decline ──────┘
                            round over, job ended: CancelTraining

    held   ──── Receipted: accepted, duplicate ────▶ Commit, Forget
           ──── Receipted: late, refused; job ended; a newer task of its job ────▶ Forget

A device serves one run at a time and answers to all. A task of another run waits in the `queue`, and its coordinator
is told (Busy); whoever has waited longest is next when the hands are free. They are free as soon as the work is done:
an update that waits for its receipt holds nobody up, however long its coordinator is away.

A newer task of the same run clears the hands (CancelTraining, Forget) and takes its place, behind those that wait.
Being online is independent of all this: a device trains on while it is offline, and on its return announces
itself and asks or sends again whatever is open. Only its own operator ends it (Stopped): whoever is refused by a
coordinator comes back later.

House rules
  1. `step` is the only door. It changes nothing: it gives back the next state and what the shell shall do.
  2. One task in hand and one training at a time. CancelTraining is final: the shell lets no result of it through.
  3. An update is kept until the coordinator's receipt, a newer task or the end of its job. A PUBACK is no receipt.
  4. Nothing is sent while offline; everything that is sent may be sent again.
  5. A round is committed at most once, and only on the coordinator's word that it took the answer.
  6. No task is dropped without a word to its coordinator, unless it was the coordinator who ended its round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["idle", "fetching", "training", "stopped"]
Verdict: TypeAlias = Literal["accepted", "duplicate", "late", "refused"]

MOST_QUEUED = 8  # runs whose tasks may wait: more than that are declined
MOST_HELD = 4  # updates without a receipt: the oldest has to make room for a fifth


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


@dataclass(frozen=True, slots=True)
class StateSeen:
    job: str
    round: int
    phase: str


@dataclass(frozen=True, slots=True)
class Stopped:
    pass


# ── actions: do them ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Announce:
    pass


@dataclass(frozen=True, slots=True)
class AnnounceLater:
    """A coordinator will not work with this device now; it may have changed its mind when we come again."""

    code: str
    reason: str


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
    digest: str


@dataclass(frozen=True, slots=True)
class Forget:
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Decline:
    job: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Busy:
    """The task waits here until this device is free."""

    job: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Quit:
    reason: str


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
    | Stopped
)
Action: TypeAlias = (
    Announce
    | AnnounceLater
    | Fetch
    | Train
    | CancelTraining
    | Send
    | SendChunks
    | Commit
    | Forget
    | Decline
    | Busy
    | Quit
    | Note
)


# ── the state ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Update:
    """What was trained for a task, known by its digest."""

    task: Tasked
    digest: str


@dataclass(frozen=True, slots=True)
class Session:
    """Everything the machine knows. Spooled updates start it as `Session(held={job: update})`."""

    phase: Phase = "idle"
    task: Tasked | None = None  # in hand, unless idle
    queue: tuple[Tasked, ...] = ()  # of other runs, one of each, the oldest first
    held: Mapping[str, Update] = field(default_factory=dict)  # job: what waits for its receipt, the oldest first
    online: bool = False
    model: str | None = None  # the last one that arrived
    answered: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # job: last round and attempt receipted
    committed: Mapping[str, int] = field(default_factory=dict)  # job: last round committed


Step: TypeAlias = tuple[Session, tuple[Action, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: Session, event: Event) -> Step:  # noqa: C901, PLR0911  one event, one line
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
            held = any(update.digest == digest for update in s.held.values())
            return s, _online(s, SendChunks(digest, missing)) if held else ()
        case StateSeen(job, round, phase):
            return _ended(s, job) if phase == "finished" else _seen(s, job, round)
        case Refused(code, reason):
            return s, (AnnounceLater(code, reason),)
        case Stopped():  # an update that is held stays in the spool
            return replace(s, phase="stopped"), (*_cancelled(s), Quit("stopped"))


def known(s: Session) -> tuple[Tasked, ...]:
    """Every task that something may still come of: in hand, waiting, or done and held."""
    return (*([s.task] if s.task else []), *s.queue, *(update.task for update in s.held.values()))


def _connected(s: Session) -> Step:
    return s, (Announce(), *_fetching(s), *(_send(update) for update in s.held.values()))


def _fetching(s: Session) -> tuple[Action, ...]:
    """What the broker has to hear, perhaps again, for the task in hand to go on."""
    return _online(s, Fetch(s.task.model)) if s.phase == "fetching" and s.task else ()


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────


def _tasked(s: Session, new: Tasked) -> Step:
    mine = next((task for task in known(s) if task.job == new.job), None)
    answered = s.answered.get(new.job, (0, ""))
    if mine is not None and (mine.round, mine.model) == (new.round, new.model):
        return _again(s, new)
    if mine is not None and new.round < mine.round:
        return s, (Note(f"round {new.round} is older than round {mine.round} in hand"),)
    if new.round < answered[0] or (new.round, new.attempt) == answered:
        return s, (Note(f"round {new.round} is already answered"),)
    return _accepted(s, new)


def _again(s: Session, new: Tasked) -> Step:
    """The same work, perhaps under a new name."""
    if s.task is not None and s.task.job == new.job:
        s = replace(s, task=new)
        return s, _fetching(s)
    if (update := s.held.get(new.job)) is not None:
        update = replace(update, task=new)
        return replace(s, held={**s.held, new.job: update}), _online(s, _send(update))
    s = _queued(s, new)
    return s, _waits(s, new)


def _accepted(s: Session, new: Tasked) -> Step:
    """New work; what was done or begun for an earlier round of its run is nobody's any more."""
    if len(s.queue) >= MOST_QUEUED and new.job not in {task.job for task in known(s)}:
        return s, _online(s, Decline(new.job, new.round, f"{MOST_QUEUED} other runs wait for this device already"))
    s, settled = _superseded(s, new)
    cancelled: tuple[Action, ...] = ()
    if s.task is not None and s.task.job == new.job:
        cancelled, s = _cancelled(s), _rest(s)
    s, begun = _next(_queued(s, new))
    return s, (*settled, *cancelled, *begun, *_waits(s, new))


def _superseded(s: Session, new: Tasked) -> Step:
    update = s.held.get(new.job)
    if update is None:
        return s, ()
    if update.task.round == new.counted:
        return _receipted(s, new.counted, update.digest, "duplicate")
    return _let_go(s, new.job), (_forget(update),)


def _queued(s: Session, new: Tasked) -> Session:
    """In the place of an older task of its run, or behind all others."""
    if any(task.job == new.job for task in s.queue):
        return replace(s, queue=tuple(new if task.job == new.job else task for task in s.queue))
    return replace(s, queue=(*s.queue, new))


def _waits(s: Session, task: Tasked) -> tuple[Action, ...]:
    """Its coordinator hears of it, if the task has to wait."""
    if task not in s.queue or s.task is None:
        return ()
    return _online(s, Busy(task.job, task.round, f"at work on round {s.task.round} of another run"))


def _next(s: Session) -> Step:
    """Whoever has waited longest, if the hands are free."""
    if s.task is not None or not s.queue:
        return s, ()
    return _begin(replace(s, queue=s.queue[1:]), s.queue[0])


def _begin(s: Session, task: Tasked) -> Step:
    if task.model == s.model:
        return replace(s, phase="training", task=task), (Train(task.round, task.model),)
    s = replace(s, phase="fetching", task=task)
    return s, _fetching(s)


def _arrived(s: Session) -> Step:
    match s:
        case Session("fetching", Tasked(model=model) as task) if model == s.model:
            return _begin(s, task)
        case _:
            return s, ()


# ── work that is done, or is no longer wanted ────────────────────────────────────────────────────────────────


def _trained(s: Session, round: int, digest: str) -> Step:
    match s:
        case Session("training", Tasked(round=mine) as task) if mine == round:
            update = Update(task, digest)
            s, crowded = _make_room(s)
            s, begun = _next(_rest(replace(s, held={**s.held, task.job: update})))
            return s, (*crowded, *_online(s, _send(update)), *begun)
        case _:
            return s, (Note(f"trained round {round}, which is no longer in hand"),)


def _make_room(s: Session) -> Step:
    if len(s.held) < MOST_HELD:
        return s, ()
    job, oldest = next(iter(s.held.items()))
    note = Note(f"round {oldest.task.round} of {job} waited too long for its receipt")
    return _let_go(s, job), (note, _forget(oldest))


def _failed(s: Session, round: int, reason: str) -> Step:
    match s:
        case Session("fetching" | "training", Tasked(job, mine)) if mine == round:
            # Offline nobody can be told, and nobody needs to be: whoever comes back is asked again.
            told = _online(s, Decline(job, round, reason))
            s, begun = _next(_rest(s))
            return s, (Note(f"round {round} failed: {reason}"), *told, *begun)
        case _:
            return s, ()


def _receipted(s: Session, round: int, digest: str, verdict: Verdict) -> Step:
    for job, update in s.held.items():
        if (update.task.round, update.digest) == (round, digest):
            counts = verdict in ("accepted", "duplicate") and s.committed.get(job, 0) < round
            s = replace(_let_go(s, job), answered={**s.answered, job: (round, update.task.attempt)})
            if not counts:
                return s, (_forget(update),)
            return replace(s, committed={**s.committed, job: round}), (Commit(round, digest), _forget(update))
    return s, ()  # a receipt that came twice, or for an update that was given up


def _seen(s: Session, job: str, round: int) -> Step:
    """A round that is over is neither begun nor trained to its end; an update of it is still offered."""
    over = tuple(task for task in s.queue if task.job == job and task.round < round)
    s = replace(s, queue=tuple(task for task in s.queue if task not in over))
    notes = tuple(Note(f"round {task.round} is over") for task in over)
    if s.task is None or s.task.job != job or s.task.round >= round:
        return s, notes
    if s.phase == "training" and s.task.overtime:
        return s, notes  # this needs the model at hand: the one of a closed round can no longer be fetched
    return _give_up(s, f"round {s.task.round} is over")


def _ended(s: Session, job: str) -> Step:
    update = s.held.get(job)
    forgotten = (_forget(update),) if update else ()
    s = replace(_let_go(s, job), queue=tuple(task for task in s.queue if task.job != job))
    if s.task is None or s.task.job != job:
        return s, forgotten
    s, actions = _give_up(s, f"job {job} has ended")
    return s, (*forgotten, *actions)


def _give_up(s: Session, why: str) -> Step:
    cancelled = _cancelled(s)
    s, begun = _next(_rest(s))
    return s, (*cancelled, Note(why), *begun)


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _rest(s: Session) -> Session:
    return replace(s, phase="idle", task=None)


def _let_go(s: Session, job: str) -> Session:
    return replace(s, held={other: update for other, update in s.held.items() if other != job})


def _cancelled(s: Session) -> tuple[Action, ...]:
    return (CancelTraining(s.task.round),) if s.phase == "training" and s.task else ()


def _send(update: Update) -> Send:
    return Send(update.task.round, update.digest)


def _forget(update: Update) -> Forget:
    return Forget(update.task.round, update.digest)


def _online(s: Session, *actions: Action) -> tuple[Action, ...]:
    return actions if s.online else ()
