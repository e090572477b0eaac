"""The life of one device: a pure function, `step(state, event) -> state, actions`.

    idle ───────────────────── Tasked ────────────────────────────────────▶ fetching    Fetch
    fetching ───────────────── ModelArrived ──────────────────────────────▶ training    Train
    training ───────────────── Trained ───────────────────────────────────▶ idle        an update more is held: Send
    fetching, training ─────── TrainingFailed, StateSeen ─────────────────▶ idle        Decline; or its round is over
    fetching ───────────────── ModelDisbelieved, Unfit ───────────────────▶ idle        Decline
    training ───────────────── Trained, TrainingFailed, StateSeen, Tasked ▶ fetching    another task has waited
    idle, fetching, training ─ Stopped, StateSeen ────────────────────────▶ stopped     Quit: told to, or `once`

    held ───────── Receipted: accepted, duplicate ──────────────────▶ Commit, Forget
    held ───────── Receipted: late, refused; its run is over; a newer task of its run ──▶ Forget

Its events and actions are in vocabulary.py.

A device serves one run at a time and answers to all. A task of another run waits in the `queue`, and its coordinator is
told (ReportBusy); the task that has waited longest is next when the hands are free. They are free as soon as the work
is done: an update that waits for its receipt holds nothing up, however long its coordinator is away.

A newer task of the same run clears the hands (CancelTraining, Forget) and takes its place, behind those that wait.
Being online is independent of all this: a device trains on while it is offline, and on its return announces
itself and asks or sends again whatever is open. Only its own operator ends it (Stopped, or `once` and the end of a run
that it saw at work): a device that is refused by a coordinator comes back later.

House rules
  1. `step` is the only door. It changes nothing: it gives back the next state and what the shell shall do.
  2. One task in hand and one training at a time. CancelTraining is final: the shell lets no result of it through.
  3. An update is kept until the coordinator's receipt, a newer task or the end of its run. A PUBACK is no receipt.
  4. Nothing is sent while offline; everything that is sent may be sent again, and of an update only what is missing.
  5. A round is committed at most once, and only on the coordinator's word that it took the answer.
  6. No task is dropped without a word to its coordinator, unless it was the coordinator who ended its round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from device_agent.decide import vocabulary

Phase: TypeAlias = Literal["idle", "fetching", "training", "stopped"]

MOST_QUEUED = 8  # runs whose tasks may wait: more than that are declined
MOST_HELD = 4  # updates without a receipt: the oldest has to make room for a fifth
MOST_SEEN = 64  # runs that were seen at work and not yet at their end
MOST_FAILURES = 8  # runs of which it is known why this device cannot work for them
DISBELIEF = 3  # manifests of a model that are not the coordinator's, before the task is declined
HOPELESS = 30.0  # seconds without a chunk of a model before others, if any wait, have their turn


# ── the state ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HeldUpdate:
    """What was trained for a task, known by its digest."""

    task: vocabulary.Tasked
    digest: str
    offered: bool = False  # it may have been sent, whole or in part


@dataclass(frozen=True)
class Session:
    """Everything the machine knows. Spooled updates start it as `Session(held={run: update})`."""

    phase: Phase = "idle"
    task: vocabulary.Tasked | None = None  # in hand, unless idle
    queue: tuple[vocabulary.Tasked, ...] = ()  # of other runs, one of each, the oldest first
    held: Mapping[str, HeldUpdate] = field(default_factory=dict)  # run: what waits for its receipt, the oldest first
    online: bool = False
    answered: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # run: last round and attempt receipted
    committed: Mapping[str, int] = field(default_factory=dict)  # run: last round committed
    seen: tuple[str, ...] = ()  # runs that were seen at work: others may have finished long ago
    failures: Mapping[str, str] = field(default_factory=dict)  # run: why this device cannot work for it
    once: bool = False  # end with a run ...
    only: str | None = None  # ... and only with one of this name


Step: TypeAlias = tuple[Session, tuple[vocabulary.Action, ...]]

FIELDS = frozenset(one.name for one in fields(Session))


def but(s: Session, **changes: Any) -> Session:
    """The same state but for these fields: `dataclasses.replace` would look at all of them for every event."""
    assert changes.keys() <= FIELDS, changes.keys() - FIELDS  # noqa: S101 - a typing error of ours
    other = object.__new__(Session)
    other.__dict__.update(s.__dict__, **changes)
    return other


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: Session, event: vocabulary.Event) -> Step:  # noqa: C901, PLR0911, PLR0912  one event, one line
    """The state after this event, and what is to be done about it."""
    if s.phase == "stopped":
        return s, ()
    match event:
        case vocabulary.AgentConnected():
            return _connected(but(s, online=True))
        case vocabulary.AgentDisconnected():
            return but(s, online=False), ()
        case vocabulary.Tasked():
            return _tasked(s, event)
        case vocabulary.ModelArrived(task):
            return _arrived(s, task)
        case vocabulary.ModelOverdue(model, silent):
            return _overdue(s, model, silent)
        case vocabulary.ModelDisbelieved(model, times, reason):
            return _disbelieved(s, model, times, reason)
        case vocabulary.Trained(round, digest):
            return _trained(s, round, digest)
        case vocabulary.TrainingFailed(round, reason, mistake):
            return _failed(s, round, reason, mistake)
        case vocabulary.Unfit(round, reason):
            return _unfit(s, round, reason)
        case vocabulary.Receipted(round, digest, verdict):
            return _receipted(s, round, digest, verdict)
        case vocabulary.ResendRequested(digest, missing):
            held = any(update.digest == digest for update in s.held.values())
            return s, _online(s, vocabulary.SendChunks(digest, missing)) if held else ()
        case vocabulary.StateSeen(phase="finished"):
            return _finished(s, event)
        case vocabulary.StateSeen():
            return _seen(s, event)
        case vocabulary.RefusalReceived(code, reason):
            return s, (vocabulary.AnnounceLater(code, reason),)
        case vocabulary.Stopped():  # an update that is held stays in the spool
            return _quit(s, 0, "stopped")


def known(s: Session) -> tuple[vocabulary.Tasked, ...]:
    """Every task that something may still come of: in hand, waiting, or done and held."""
    return (*([s.task] if s.task else []), *s.queue, *(update.task for update in s.held.values()))


def _connected(s: Session) -> Step:
    actions: tuple[vocabulary.Action, ...] = (vocabulary.Announce(), *_fetching(s))
    for update in s.held.values():
        s, sent = _send(s, update)
        actions = (*actions, *sent)
    return s, actions


def _send(s: Session, update: HeldUpdate) -> Step:
    """Whole the first time; after that its coordinator is asked what is missing: no chunk travels twice."""
    if not s.online:
        return s, ()
    how = vocabulary.Offer if update.offered else vocabulary.Send
    s = but(s, held={**s.held, update.task.run_key: replace(update, offered=True)})
    return s, (how(update.task.round, update.digest),)


def _fetching(s: Session) -> tuple[vocabulary.Action, ...]:
    """What the broker has to hear, perhaps again, for the task in hand to go on."""
    return _online(s, vocabulary.Fetch(s.task)) if s.phase == "fetching" and s.task else ()


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────


def _tasked(s: Session, new: vocabulary.Tasked) -> Step:
    mine = next((task for task in known(s) if task.run_key == new.run_key), None)
    answered = s.answered.get(new.run_key, (0, ""))
    if mine is not None and mine.same_work(new):
        return _again(s, new)
    if new.round < (latest := max(answered[0], mine.round if mine else 0)):
        return s, _set_back(s, new, latest)
    if (new.round, new.attempt) == answered:
        return s, (vocabulary.LogNote(f"round {new.round} is already answered"),)
    return _accepted(s, new)


def _set_back(s: Session, new: vocabulary.Tasked, latest: int) -> tuple[vocabulary.Action, ...]:
    """Decline a task older than the last answered round: the coordinator was rolled back."""
    why = (
        f"round {new.round} is older than round {latest}, which this device has already worked on: if the run's"
        " folder was restored from a copy, go on under another run.name, with run.from"
    )
    return vocabulary.LogNote(why), *_online(s, vocabulary.Decline(new, why))


def _again(s: Session, new: vocabulary.Tasked) -> Step:
    """The same work, perhaps under a new name."""
    if s.task is not None and s.task.run_key == new.run_key:
        s = but(s, task=new)
        return s, _fetching(s)
    if (update := s.held.get(new.run_key)) is not None:
        update = replace(update, task=new)
        return _send(but(s, held={**s.held, new.run_key: update}), update)
    s = _queued(s, new)
    return s, _waits(s, new)


def _accepted(s: Session, new: vocabulary.Tasked) -> Step:
    """Take new work; drop what was done or begun for an earlier round of its run."""
    if len(s.queue) >= MOST_QUEUED and new.run_key not in {task.run_key for task in known(s)}:
        return s, _online(s, vocabulary.Decline(new, f"{MOST_QUEUED} other runs wait for this device already"))
    s, settled = _superseded(s, new)
    cancelled: tuple[vocabulary.Action, ...] = ()
    if s.task is not None and s.task.run_key == new.run_key:
        cancelled, s = _cancelled(s), _rest(s)
    s, begun = _next(_queued(s, new))
    return s, (*settled, *cancelled, *begun, *_waits(s, new))


def _superseded(s: Session, new: vocabulary.Tasked) -> Step:
    update = s.held.get(new.run_key)
    if update is None:
        return s, ()
    if update.task.round == new.counted:
        return _receipted(s, new.counted, update.digest, "duplicate")
    return _let_go(s, new.run_key), (_forget(update),)


def _queued(s: Session, new: vocabulary.Tasked) -> Session:
    """In the place of an older task of its run, or behind all others."""
    if any(task.run_key == new.run_key for task in s.queue):
        return but(s, queue=tuple(new if task.run_key == new.run_key else task for task in s.queue))
    return but(s, queue=(*s.queue, new))


def _waits(s: Session, task: vocabulary.Tasked) -> tuple[vocabulary.Action, ...]:
    """Its coordinator hears of it, if the task has to wait."""
    if task not in s.queue or s.task is None:
        return ()
    return _online(s, vocabulary.ReportBusy(task, f"at work on round {s.task.round} of another run"))


def _next(s: Session) -> Step:
    """Begin the task that has waited longest, if no other is in hand."""
    if s.task is not None or not s.queue:
        return s, ()
    s = but(s, phase="fetching", task=s.queue[0], queue=s.queue[1:])
    return s, _fetching(s)


# ── the model of the task in hand ────────────────────────────────────────────────────────────────────────────


def _arrived(s: Session, task: vocabulary.Tasked) -> Step:
    if s.phase != "fetching" or s.task is None or not s.task.same_work(task):
        return s, ()
    return but(s, phase="training"), (vocabulary.Train(s.task),)


def _overdue(s: Session, model: str, silent: float) -> Step:
    """It is asked for again, and not for ever if other runs wait."""
    task = _fetches(s, model)
    if task is None:
        return s, ()
    if s.queue and silent > HOPELESS:
        return _failed(s, task.round, f"model {model} does not come, and other runs wait")
    return s, _online(s, vocabulary.AskAgain(task, model))


def _disbelieved(s: Session, model: str, times: int, reason: str) -> Step:
    """It is asked for again, because an attacker who overwrote it may not do so twice; then declined."""
    task = _fetches(s, model)
    if task is None:
        return s, ()
    if times >= DISBELIEF:
        return _failed(s, task.round, reason)
    return s, _online(s, vocabulary.AskAgain(task, model, forged=True))


def _fetches(s: Session, model: str) -> vocabulary.Tasked | None:
    """The task in hand, if it waits for this."""
    waits = s.phase == "fetching" and s.task is not None and model in {id for _, id in s.task.needs}
    return s.task if waits else None


# ── work that is done, or is no longer wanted ────────────────────────────────────────────────────────────────


def _trained(s: Session, round: int, digest: str) -> Step:
    match s:
        case Session("training", vocabulary.Tasked(round=mine) as task) if mine == round:
            update = HeldUpdate(task, digest)
            s, crowded = _make_room(s)
            s = but(s, held={**s.held, task.run_key: update}, failures=_without(s.failures, task.run_key))
            s, sent = _send(_rest(s), update)
            s, begun = _next(s)
            return s, (*crowded, *sent, *begun)
        case _:
            return s, (vocabulary.LogNote(f"trained round {round}, which this device no longer works on"),)


def _make_room(s: Session) -> Step:
    if len(s.held) < MOST_HELD:
        return s, ()
    run_key, oldest = next(iter(s.held.items()))
    note = vocabulary.LogNote(f"round {oldest.task.round} of {run_key} waited too long for its receipt")
    return _let_go(s, run_key), (note, _forget(oldest))


def _failed(s: Session, round: int, reason: str, mistake: str = "") -> Step:
    match s:
        case Session("fetching" | "training", vocabulary.Tasked(round=mine) as task) if mine == round:
            if mistake:
                older = list(_without(s.failures, task.run_key).items())[1 - MOST_FAILURES :]
                s = but(s, failures={**dict(older), task.run_key: mistake})
            # Offline no message is sent, and none is needed: a device that comes back is asked again.
            told = _online(s, vocabulary.Decline(task, reason))
            s, begun = _next(_rest(s))
            return s, (vocabulary.LogNote(f"round {round} failed: {reason}"), *told, *begun)
        case _:
            return s, ()


def _unfit(s: Session, round: int, reason: str) -> Step:
    """Decline the task; no coordinator asks again until this device announces itself."""
    if s.phase != "fetching":
        return s, ()
    s, declined = _failed(s, round, reason)
    return s, (*declined, *_online(s, vocabulary.Announce())) if declined else ()


def _receipted(s: Session, round: int, digest: str, verdict: vocabulary.Verdict) -> Step:
    for run_key, update in s.held.items():
        if update.digest == digest and (verdict == "refused" or update.task.round == round):
            round = update.task.round  # who could not read an update does not know its round
            merged = verdict in ("accepted", "duplicate") and update.task.purpose == "train"
            counts = merged and s.committed.get(run_key, 0) < round
            s = but(_let_go(s, run_key), answered={**s.answered, run_key: (round, update.task.attempt)})
            if not counts:
                return s, (_forget(update),)
            return but(s, committed={**s.committed, run_key: round}), (
                vocabulary.Commit(round, digest),
                _forget(update),
            )
    return s, ()  # a receipt that came twice, or for an update that was given up


def _seen(s: Session, state: vocabulary.StateSeen) -> Step:
    """A round that is over is neither begun nor trained to its end; an update of it is still offered."""
    if state.run_key not in s.seen:
        s = but(s, seen=(*s.seen, state.run_key)[-MOST_SEEN:])
    over = tuple(task for task in s.queue if task.run_key == state.run_key and task.round < state.round)
    s = but(s, queue=tuple(task for task in s.queue if task not in over))
    notes = tuple(vocabulary.LogNote(f"round {task.round} is over") for task in over)
    if s.task is None or s.task.run_key != state.run_key or s.task.round >= state.round:
        return s, notes
    if s.phase == "training" and s.task.overtime:
        return s, notes  # this needs the model at hand: the one of a closed round can no longer be fetched
    return _give_up(s, f"round {s.task.round} is over")


def _finished(s: Session, state: vocabulary.StateSeen) -> Step:
    """With `once` that is the end, if it is our own run and not one from long ago."""
    run_key, ours = state.run_key, state.run_key in s.seen
    failure, update = s.failures.get(run_key), s.held.get(run_key)
    s = but(
        _let_go(s, run_key), failures=_without(s.failures, run_key), seen=tuple(one for one in s.seen if one != run_key)
    )
    s = but(s, queue=tuple(task for task in s.queue if task.run_key != run_key))
    actions: tuple[vocabulary.Action, ...] = (_forget(update),) if update else ()
    if ours:
        actions = (*actions, vocabulary.LogNote(f"job {state.job} has finished"))
    if ours and s.once and s.only in (None, state.job):
        code, reason = (2, failure) if failure else (0, f"job '{state.job}' has finished")
        s, ended = _quit(s, code, reason)
    elif s.task is not None and s.task.run_key == run_key:
        s, ended = _give_up(s, f"job {state.job} has ended")
    else:
        ended = ()
    return s, (*actions, *ended)


def _give_up(s: Session, why: str) -> Step:
    cancelled = _cancelled(s)
    s, begun = _next(_rest(s))
    return s, (*cancelled, vocabulary.LogNote(why), *begun)


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _quit(s: Session, code: int, reason: str) -> Step:
    return but(s, phase="stopped"), (*_cancelled(s), vocabulary.Quit(code, reason))


def _rest(s: Session) -> Session:
    return but(s, phase="idle", task=None)


def _let_go(s: Session, run_key: str) -> Session:
    return but(s, held={other: update for other, update in s.held.items() if other != run_key})


def _without(failures: Mapping[str, str], run_key: str) -> Mapping[str, str]:
    return {other: why for other, why in failures.items() if other != run_key}


def _cancelled(s: Session) -> tuple[vocabulary.Action, ...]:
    return (vocabulary.CancelTraining(s.task.round),) if s.phase == "training" and s.task else ()


def _forget(update: HeldUpdate) -> vocabulary.Forget:
    return vocabulary.Forget(update.task.round, update.digest)


def _online(s: Session, *actions: vocabulary.Action) -> tuple[vocabulary.Action, ...]:
    return actions if s.online else ()
