"""Everything the coordinator decides: a pure function, `step(state, event) -> state, actions, facts`.

    idle      ── Announced, Connected, Woken ─▶ preparing  a device is there, or a round from before a restart
    preparing ── Prepared ────────────────────▶ running    the model is there, and all that was promised before
    preparing ── Prepared ────────────────────▶ clearing   the run had ended already
    running   ── Merged, Looked ──────────────▶ clearing   the last round is merged, and its report is made
    clearing  ── Searched, Woken ─────────────▶ leaving    the broker has told what stands there, or takes too long
    leaving   ── Woken ───────────────────────▶ ended      everything is sent, or takes too long
    idle      ── Stop, Failed ────────────────▶ leaving    somebody wants an end, or something broke
    preparing ── Stop, Failed ────────────────▶ leaving
    running   ── Stop, Failed ────────────────▶ leaving

The picture is checked against what the machine does (tests/coordinator/test_pictures.py). Its events and actions are in
vocabulary.py. Inside stand smaller machines: `rounds` (whom rounds ask, when they close), `roster` (who may call itself
what), `conduct` (who is in quarantine).

House rules
  1. Ids, numbers and digests only: tensors and frames stay in the shell under their digest.
  2. Every answer gets a verdict, as an action: Accept, Late, Ignore or Refuse. It is opened only if it can count.
  3. Time is told by the events (`at`, on a clock that only grows). `deadline` says when a `Woken` is due.
  4. A state with other rounds than the one before is written down before anything is done about it.
  5. A fact is told where it is decided, and has its time from the shell.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar

from coordinator import roster, rounds
from coordinator.conduct import Conduct
from coordinator.roster import Device
from coordinator.rounds import Event as RoundEvent
from coordinator.rounds import Rounds, SetTimer
from coordinator.vocabulary import (
    NOTHING,
    Accept,
    Action,
    Announced,
    Answered,
    Ask,
    Begun,
    Busy,
    Certified,
    Certify,
    ClearLeftovers,
    ClearModels,
    Connected,
    Declined,
    Disconnected,
    Dismiss,
    Event,
    Expiring,
    Failed,
    Forget,
    HandOver,
    Ignore,
    Invitee,
    Kept,
    Late,
    Leave,
    Listen,
    ListenAgain,
    Looked,
    Meet,
    Merge,
    Merged,
    Misbehaved,
    Model,
    Offered,
    Open,
    Paused,
    Prepare,
    Prepared,
    Progressed,
    Publish,
    PublishAgain,
    Refuse,
    Resend,
    Revoked,
    SayState,
    Searched,
    Standing,
    Stop,
    Tell,
    Totals,
    TurnAway,
    Unusable,
    Usable,
    Woken,
)
from edgefl import events
from edgefl.events import Fact
from edgefl.protocol.reconnect import spread

PATIENCE = 30.0  # seconds after a connection in which devices known from before must be heard of
GLANCE = 0.25  # seconds between two looks at what is waited for
QUIET = 15.0  # seconds after which it is told again what is waited for, once for each reason
LACKING, CONTENT = 60.0, 300.0  # seconds until the broker is asked again who is there: devices are waited for, or not
SEARCH = 5.0  # seconds for a broker to tell what stands there
FLUSH = 5.0  # seconds for the last messages to be sent
POLL = 0.05  # seconds between two looks at them
NAMELESS = "-"  # stands for all who have not proven their name: they are kept in mind as one, and not answered

Phase: TypeAlias = Literal["idle", "preparing", "running", "clearing", "leaving", "ended"]


@dataclass(frozen=True)
class State:
    """Everything that is known about a run, and nothing that is large."""

    rounds: Rounds
    conduct: Conduct
    fed: tuple[RoundEvent, ...] = ()  # what the round machine was told in the last step, and changed by
    looks: bool = False  # whether every merge is followed by a look at every device's model
    resumed: bool = False  # from a journal: what was in hand is taken up again at the first connection
    phase: Phase = "idle"
    devices: Mapping[str, Device] = field(default_factory=dict)
    fleet: frozenset[str] = frozenset()  # everybody who ever joined
    model: Model | None = None  # of the round in hand
    held: bool = False  # a round is open, and its invitations wait for the model
    announced: tuple[int, int] = (0, -1)  # the round that devices were last told of, and how large the fleet was then
    astray: int = 0  # the last round that somebody who was asked may still be at work on, though it is over
    timer: SetTimer | None = None
    timer_due: float | None = None
    opened: Mapping[bytes, Answered] = field(default_factory=dict)  # answers that the shell looks into
    answers: Mapping[str, Kept] = field(default_factory=dict)  # by device: of the round in hand
    late: Mapping[str, Kept] = field(default_factory=dict)  # by device: to be merged with it
    unlooked: int = 0  # rounds whose reports wait for a look at every device's model
    population: int = 0  # of the fleet, when the round in hand was closed
    since_merge: Totals = NOTHING
    total: Totals = NOTHING  # up to the last merge
    refusals: Mapping[str, int] = field(default_factory=dict)  # by code
    began: float = 0.0
    since: float = 0.0  # of the round in hand, its waiting for devices included
    waited: tuple[int, float] = (0, 0.0)  # the round in hand, and seconds of that until it was opened
    unheard: frozenset[str] = frozenset()  # present before the connection, and not heard of since
    unheard_due: float | None = None
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


Step: TypeAlias = tuple[State, tuple[Action, ...], tuple[Fact, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: State, event: Event) -> Step:
    """The state after this event, what is to be done about it, and what there is to tell."""
    after, actions, facts = _step(_but(s, fed=()), event)
    changed = after.rounds is not s.rounds or after.phase != s.phase or (after.paused, after.away) != (s.paused, s.away)
    if changed and after.look_due is None:
        after = _but(after, look_due=event.at + GLANCE)
    return after, actions, facts


def _step(s: State, event: Event) -> Step:  # noqa: PLR0911, PLR0912, C901  one event, one line
    match event:
        case _ if not unfinished(s):
            return _ending(s, event)
        case Connected(at):
            return _connected(_but(s, away=""), at)
        case Disconnected(reason=reason):
            return _but(s, away=reason, listened=None), (), (events.Disconnected(reason),)
        case Announced(retained=True) if _known_so(s, event):
            return s, (), ()
        case Announced():
            return _announced(s, event)
        case Declined(at, device, round, reason):
            declined = events.Declined(device, round, reason)
            return _told(declined, _feed(_heard(s, device), rounds.Declined(device, round, at, reason), at))
        case Busy(at, device, round, reason):
            busy = events.Busy(device, round, reason)
            return _told(busy, _feed(_heard(s, device), rounds.Busy(device, round, at, reason), at))
        case Begun(_, device):
            return _heard(s, device), (), (events.Sending(device),)
        case Progressed(_, device, round, steps):
            return _heard(s, device), (), (events.Progressed(device, round, steps),)
        case Offered():
            return _offered(_heard(s, event.device), event)
        case Answered():
            return _answered(_heard(s, event.device), event)
        case Usable(at, digest) if digest in s.opened:
            return _usable(*_closed(s, digest), at)
        case Unusable(digest=digest) if digest in s.opened:
            return _unusable(*_closed(s, digest), event)
        case Misbehaved(at, device, code, reason, frame):  # unless refused, it would be offered again and again
            refused = (Refuse(device, s.rounds.round, frame, reason),) if frame else ()
            return _after(refused, _misbehaved(s, device, code, reason, at))
        case Revoked():
            return _revoked(s, event)
        case Expiring(_, device, request):
            return _heard(s, device), (Certify(device, request),), ()
        case Certified(_, device, certificate):
            return s, (HandOver(device, certificate),), (events.Certified(device),)
        case Prepared() if s.phase == "preparing":
            return _prepared(s, event)
        case Merged() if s.phase == "running":
            return _merged(s, event)
        case Looked(at, reports) if s.phase == "running":
            return _perhaps_over((_but(s, unlooked=s.unlooked - 1), (), reports), at)
        case Paused(reason=reason):
            facts = (events.Paused(reason),) if reason and not s.paused else ()
            return _but(s, paused=reason), (), facts
        case Searched():
            return _but(s, searched=True), (), ()
        case Woken(at):
            return _woken(s, at)
        case Stop(at) | Failed(at):
            standing: Standing = "finished" if s.rounds.phase == "finished" else "gathering"
            return _leave(_but(s, stopped=True), (_state(s, standing), ClearModels()), at)
        case _:
            return s, (), ()


def deadline(s: State) -> float | None:
    """When a `Woken` is due."""
    at_work = s.timer_due, s.unheard_due, s.look_due, s.quiet_due, s.conduct.deadline(), _listens(s)
    due = at_work if unfinished(s) else (s.end_due, s.poll_due)
    return min((one for one in due if one is not None), default=None)


def recalling(s: State) -> bool:
    """Whether nobody can be heard yet: what was promised before a restart is not here again."""
    return s.resumed and s.phase == "preparing"


def unfinished(s: State) -> bool:
    """Whether there is still something to be coordinated."""
    return s.phase in ("idle", "preparing", "running")


def online(s: State, device: str) -> bool:
    """Whether the device is there."""
    return device in s.devices and s.devices[device].online


def waiting(s: State) -> str:
    """Why the coordinator waits, in one line for a human."""
    if s.paused:
        return f"paused: {s.paused}"
    if s.away:
        return f"the broker is away ({s.away})"
    return "preparing the model" if s.phase == "preparing" else rounds.waiting(s.rounds)


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────


def _connected(s: State, at: float) -> Step:
    s = _but(_unheard(s, s.rounds.present, at), listened=at, announced=(0, -1))
    if s.resumed:  # who was asked in an earlier life is not known
        s = _but(s, astray=s.rounds.round)
    actions: tuple[Action, ...] = (Listen(), _state(s), PublishAgain())
    facts: tuple[Fact, ...] = (events.Connected(),)
    if not s.resumed or s.phase != "idle":
        return s, actions, facts
    facts = (*facts, events.Resumed(s.rounds.round))
    if s.rounds.phase == "starting":  # the job is not needed yet
        return _after(actions, _told(facts, _feed(_but(s, resumed=False), rounds.Resumed(at), at)))
    return _after(actions, _told(facts, _prepare(_but(s, unheard_due=None))))


def _listens(s: State) -> float | None:
    """When to ask the broker again who is there: soon, where a round lacks devices."""
    if s.listened is None or s.phase == "preparing":
        return None
    return s.listened + (LACKING if s.rounds.phase in ("starting", "gathering") else CONTENT)


def _unheard(s: State, devices: frozenset[str], at: float) -> State:
    """These were there before the connection, and have some time to be heard of."""
    due = at + PATIENCE + spread(len(s.fleet)) if devices and not recalling(s) else None
    return _but(s, unheard=devices, unheard_due=due)


def _announced(s: State, event: Announced) -> Step:
    at, id, new = event.at, event.device, event.announcement
    claimed = _claim(s, event)
    match claimed:
        case "stale":
            return s, (), ()
        case roster.Refused("device.too_many" as code, reason):
            return _misbehaved(s, id, code, reason, at)
        case roster.Refused(code, reason):
            s = _counted(s, code)
            if not new.online:
                return s, (), ()
            away = TurnAway(id, code, reason, new.installation, event.key)
            return s, (away,), (events.Refused(id, code, reason),)
    s = _but(s, devices={**s.devices, id: claimed}, unheard=s.unheard - {id})
    if not new.online:
        return _after((Meet(id),), _lost(s, id, "", at))
    joined = events.Joined(id, new.samples, new.host, new.version, new.back_end)
    return _after((Meet(id),), _told(joined, _then(_prepare(s), lambda s: _joined(s, id, at))))


def _known_so(s: State, event: Announced) -> bool:
    """Whether the broker says again what is known of a device, and the rounds have taken in."""
    id, new = event.device, event.announcement
    same = id in s.devices and s.devices[id].announced == new and id not in s.unheard
    return same and (id in s.rounds.present or not new.online or s.conduct.quarantined(id, event.at))


def _claim(s: State, event: Announced) -> roster.Claim:
    if event.refusal is not None:
        taken = roster.taken(s.devices, event.device, event.announcement) if event.key else None
        return taken or roster.Refused(*event.refusal)
    return roster.claim(s.devices, event.device, event.announcement, retained=event.retained)


def _joined(s: State, id: str, at: float) -> Step:
    if s.conduct.quarantined(id, at):
        return s, (), ()
    return _feed(_but(s, fleet=s.fleet | {id}), rounds.Joined(id, at, s.devices[id].announced.samples), at)


def _lost(s: State, id: str, why: str, at: float) -> Step:
    return _told(events.Lost(id, why), _feed(s, rounds.Lost(id, at), at))


def _revoked(s: State, event: Revoked) -> Step:
    """It may have an open connection: what it has answered to counts, and it is not asked again."""
    at, id, why = event.at, event.device, event.reason
    s, actions = _counted(s, "device.revoked"), (TurnAway(id, "device.revoked", why), Dismiss(id))
    devices = {other: device for other, device in s.devices.items() if other != id}
    lost = _lost(_but(s, devices=devices, unheard=s.unheard - {id}), id, why, at)
    return _after(actions, lost)


def _heard(s: State, id: str) -> State:
    """Whoever speaks is there, and not only remembered by the broker."""
    device = s.devices.get(id)
    if device is None or device.live:
        return s
    return _but(s, devices={**s.devices, id: replace(device, live=True)})


def _misbehaved(s: State, id: str, code: str, reason: str, at: float) -> Step:
    s = _counted(s, code)
    if s.conduct.quarantined(id, at):
        return s, (), ()
    conduct, quarantined = s.conduct.struck(id, at)
    s, refused = _but(s, conduct=conduct), events.Refused(id, code, reason)
    if not quarantined:
        return s, (), (refused,)
    if id == NAMELESS:
        why = "too many messages whose sender nobody can prove: for a while they are counted, and not told of"
        return s, (), (refused, events.Quarantined(id, why))
    why = f"device '{id}' sent too many messages that cannot be used; it is heard again later"
    facts = refused, events.Quarantined(id, why)
    return _after((TurnAway(id, "device.quarantined", why),), _told(facts, _feed(s, rounds.Lost(id, at), at)))


def _counted(s: State, code: str) -> State:
    refusals = {**s.refusals, code: s.refusals.get(code, 0) + 1}
    return _but(s, refusals=refusals, since_merge=s.since_merge + Totals(refused=1))


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _offered(s: State, offer: Offered) -> Step:
    device, round, digest = offer.device, offer.round, offer.digest
    if not offer.ours:
        foreign = _misbehaved(s, NAMELESS, "update.foreign", f"'{device}' spoke to another run of this job", offer.at)
        return _after((Refuse(device, round, digest, "of another run"),), foreign)
    match rounds.verdict(s.rounds, device, round):
        case rounds.Ignore(reason=reason):
            return s, (Ignore(device, round, digest, reason),), ()
        case _:
            return s, (Resend(device, digest, offer.size),), ()


def _answered(s: State, answer: Answered) -> Step:
    device, round, digest = answer.device, answer.round, answer.digest
    s = _but(s, since_merge=s.since_merge + Totals(bytes_up=answer.size))
    if answer.foreign:
        return _refused(s, answer, "update.foreign", answer.foreign, "of another run")
    if s.phase in ("idle", "preparing"):
        return _refused(s, answer, "update.early", "no round has been opened yet")
    match rounds.verdict(s.rounds, device, round):
        case rounds.Ignore(reason=reason):  # not opened, not looked at: it costs and teaches nothing
            return _ignored(s, answer, reason)
        case _:
            return _but(s, opened={**s.opened, digest: answer}), (Open(device, digest),), ()


def _closed(s: State, digest: bytes) -> tuple[State, Answered]:
    """The answer that was looked into."""
    rest = {other: answer for other, answer in s.opened.items() if other != digest}
    return _but(s, opened=rest), s.opened[digest]


def _usable(s: State, answer: Answered, at: float) -> Step:
    return _feed(s, rounds.Answered(answer.device, answer.round, at, answer.seconds_per_step or None), at, answer)


def _unusable(s: State, answer: Answered, event: Unusable) -> Step:
    declined = rounds.Declined(answer.device, answer.round, event.at, event.reason)
    refused = _refused(s, answer, event.code, event.reason)
    return _then(refused, lambda s: _feed(s, declined, event.at))


def _refused(s: State, answer: Answered, code: str, reason: str, message: str = "") -> Step:
    verdict = Refuse(answer.device, answer.round, answer.digest, message or reason)
    told = _answer(s, answer, "refused", reason)
    return _after((verdict,), _told(told, _misbehaved(s, answer.device, code, reason, answer.at)))


def _ignored(s: State, answer: Answered, reason: rounds.Reason) -> Step:
    s = _but(s, since_merge=s.since_merge + Totals(late=reason == "late"))
    verdict = Ignore(answer.device, answer.round, answer.digest, reason)
    return s, (verdict,), (_answer(s, answer, "late" if reason == "late" else "ignored", reason),)


def _answer(s: State, answer: Answered, verdict: events.Verdict, reason: str = "") -> events.Answered:
    device = s.devices.get(answer.device)
    asked = device is not None and device.asked[0] == answer.round
    return events.Answered(
        answer.device,
        answer.round,
        answer.size,
        verdict,
        reason,
        answer.steps,
        took=answer.at - device.asked_at if device and asked else None,
        seconds_per_step=answer.seconds_per_step or None,
    )


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


def _feed(s: State, event: rounds.Event, at: float, answer: Answered | None = None) -> Step:
    """One event into the round machine, and what follows from it here."""
    before = s.rounds
    after, actions = rounds.step(before, event)
    extended = isinstance(event, rounds.Expired) and before.opening == after.opening and after.attempt > before.attempt
    told = (events.Extended(before.round, rounds.outstanding(before)),) if extended else ()
    fed = (*s.fed, event) if after != before else s.fed
    now: Step = _but(s, rounds=after, fed=fed), (), told
    stuck = isinstance(event, rounds.Expired) and after != before and after.phase != "merging"
    if stuck and s.listened is not None:  # the word that somebody has left, or come, may be lost
        now = _then(now, lambda s: (_but(s, listened=at), (ListenAgain(),), ()))
    return _each(now, actions, lambda s, action: _follow(s, action, before, at, answer))


def _follow(  # noqa: PLR0911  one action, one case
    s: State, action: rounds.Action, before: Rounds, at: float, answer: Answered | None
) -> Step:
    match action:
        case rounds.Invite(devices=devices):
            return _ask(s, devices, s.model, at) if s.model else _prepare(_but(s, held=True))
        case rounds.SetTimer(seconds=seconds):
            return _but(s, timer=action, timer_due=None if s.held else at + seconds), (), ()
        case rounds.Accept(device, round) if answer is not None:
            s = _but(_paced(s, answer), answers={**s.answers, device: Kept(round, answer.digest)})
            return s, (Accept(device, round, answer.digest),), (_answer(s, answer, "accepted"),)
        case rounds.Late(device, round) if answer is not None:
            s = _but(_paced(s, answer), late={**s.late, device: Kept(round, answer.digest)})
            s = _but(s, since_merge=s.since_merge + Totals(late=1))
            told = _answer(s, answer, "late", "kept by policy")
            return s, (Late(device, round, answer.digest),), (told,)
        case rounds.Ignore(reason=reason) if answer is not None:
            return _ignored(s, answer, reason)
        case rounds.Merge():
            return _merge(s, action, again=before.phase == "merging")
        case rounds.Abandon(round, reason):
            gone = tuple(kept.digest for kept in s.answers.values())
            return _but(s, answers={}, astray=round), (Forget(gone),), (events.Abandoned(round, reason),)
        case rounds.Finish():
            return _but(s, timer=None, timer_due=None, held=False), (), ()
        case _:
            return s, (), ()


def _paced(s: State, answer: Answered) -> State:
    device = s.devices.get(answer.device)
    if device is None or not answer.seconds_per_step:
        return s
    return _but(s, devices={**s.devices, answer.device: replace(device, seconds_per_step=answer.seconds_per_step)})


def _ask(s: State, ids: tuple[str, ...], model: Model, at: float) -> Step:
    round, opening, counted = s.rounds.round, s.rounds.opening, s.rounds.counted
    # Who is known from before a restart only, and not heard of since, is asked when it comes back.
    here = {id: s.devices[id] for id in ids if id in s.devices}
    fetched = sum(_to_fetch(device, model) for device in here.values())
    devices = {**s.devices, **{id: _asked(device, round, opening, at) for id, device in here.items()}}
    waited = s.waited if s.waited[0] == round else (round, at - s.since)
    s = _but(s, devices=devices, waited=waited, since_merge=s.since_merge + Totals(bytes_down=fetched))
    invitees = tuple(
        Invitee(id, device.announced.installation, counted.get(id, 0), device.seconds_per_step, device.holds == round)
        for id, device in here.items()
    )
    s, state = _say_training(s, round)
    return s, (*state, Ask(round, opening, invitees)), (events.Asked(round, opening, ids, fetched),)


def _say_training(s: State, round: int) -> tuple[State, tuple[Action, ...]]:
    """Tell every device of the round, if somebody may still work for one that is over; others know, or need not."""
    (last_round, fleet), now = s.announced, (round, len(s.fleet))
    if fleet == now[1] and not last_round <= s.astray < round:
        return s, ()
    return _but(s, announced=now), (_state(s, "training"),)


def _to_fetch(device: Device, model: Model) -> int:
    """Bytes of the models that the device needs and does not have."""
    if device.holds == model.round:
        return 0
    return model.bytes + (0 if device.holds == model.round - 1 else model.previous)


def _asked(device: Device, round: int, opening: int, at: float) -> Device:
    since = device.asked_at if device.asked == (round, opening) else at
    return replace(device, holds=round, asked=(round, opening), asked_at=since)


def _merge(s: State, merge: rounds.Merge, *, again: bool) -> Step:
    answers = {id: s.answers[id] for id in merge.devices}
    population = s.population if again else len(s.fleet)
    total = s.total + s.since_merge
    waited = s.waited[1] if s.waited[0] == merge.round else 0.0
    action = Merge(merge.round, answers, s.late, population, s.since_merge, total, s.since, waited)
    missing = tuple(sorted(set(s.rounds.asked) - s.rounds.answered))
    told = () if again else (events.Closed(merge.round, merge.devices, missing, tuple(sorted(s.late))),)
    gone = tuple(kept.digest for id, kept in s.answers.items() if id not in answers)
    s = _but(s, answers={}, late={}, since_merge=NOTHING, total=total, timer=None, timer_due=None)
    late = (id for id, device in s.devices.items() if device.asked[0] == merge.round and id not in answers)
    astray = merge.round if missing or any(late) else s.astray
    s = _but(s, unlooked=s.unlooked + s.looks, population=population, astray=astray)
    return s, (action, Forget(gone)) if gone else (action,), told


def _prepare(s: State) -> Step:
    """Begin to make the job, unless that is done; it takes some seconds, so it is said."""
    if s.phase != "idle":
        return s, (), ()
    return _but(s, phase="preparing"), (Prepare(),), (events.Preparing("preparing the model"),)


def _prepared(s: State, event: Prepared) -> Step:
    at, recalled, resumed, held = event.at, event.recalled, s.resumed, s.held
    s = _but(s, phase="running", model=event.model, resumed=False, held=False)
    publish: tuple[Action, ...] = (Publish(),) if event.model else ()
    if not resumed:
        return _after(publish, _told(event.told, _open(s, at) if held else (s, (), ())))
    s = _but(_unheard(s, s.unheard, at), answers=recalled.answers, late=recalled.late)
    s = _but(s, population=recalled.population, total=recalled.total)
    if event.round >= s.rounds.round and s.rounds.phase == "merging":  # merged and saved, but not yet written down
        merged = rounds.Merged(event.round, at, done=event.done)
        s = _but(s, answers={}, late=recalled.later)
        return _perhaps_over(_after(publish, _told(event.told, _feed(s, merged, at))), at)
    now = _feed(s, rounds.Resumed(at), at)
    if s.rounds.phase == "merging":
        now = _then(now, lambda s: (_but(s, late=recalled.later), (), ()))
    return _perhaps_over(_after((Tell(event.told), *publish), now), at)


def _open(s: State, at: float) -> Step:
    """The round has waited for its model: whoever was to be asked and is still here is, and its time begins."""
    s = _but(s, timer_due=at + s.timer.seconds if s.timer else None)
    ids = rounds.outstanding(s.rounds)
    return _ask(s, ids, s.model, at) if s.model and ids else (s, (), ())


def _merged(s: State, event: Merged) -> Step:
    at = event.at
    s = _but(s, model=event.model, since=at, paused="")
    now = _feed(s, rounds.Merged(event.round, at, done=event.done), at)
    publish: tuple[Action, ...] = (Publish(),) if event.model else ()
    return _perhaps_over(_after(publish, _told(event.reports, now)), at)


# ── time, and the end ────────────────────────────────────────────────────────────────────────────────────────


def _woken(s: State, at: float) -> Step:
    now: Step = s, (), ()
    if s.timer is not None and _due(s.timer_due, at):
        expired = rounds.Expired(s.timer.round, s.timer.attempt, at)
        now = _then(now, lambda s: _feed(_but(s, timer=None, timer_due=None), expired, at))
    if _due(s.unheard_due, at):
        now = _then(now, lambda s: _forgotten(s, at))
    if _due(s.conduct.deadline(), at):
        now = _then(now, lambda s: _released(s, at))
    if _due(_listens(s), at):
        now = _then(now, lambda s: (_but(s, listened=at), (ListenAgain(),), ()))
    if _due(s.look_due, at) or _due(s.quiet_due, at):
        now = _then(now, lambda s: _tell_why(s, at))
    return now


def _due(moment: float | None, at: float) -> bool:
    return moment is not None and at >= moment


def _forgotten(s: State, at: float) -> Step:
    """Devices known from before the connection, which nobody has heard of since."""
    gone = {id: replace(device, live=False) for id, device in s.devices.items() if id in s.unheard}
    now: Step = _but(s, unheard=frozenset(), unheard_due=None, devices={**s.devices, **gone}), (), ()
    why = "not heard of since the connection"
    return _each(
        now, sorted(s.unheard), lambda s, one: _told(events.Lost(one, why), _feed(s, rounds.Lost(one, at), at))
    )


def _released(s: State, at: float) -> Step:
    conduct, free = s.conduct.released(at)
    here = [id for id in free if id in s.devices and s.devices[id].online]
    now: Step = _but(s, conduct=conduct), (), ()
    return _each(now, here, lambda s, one: _told(events.Released(one), _joined(s, one, at)))


def _tell_why(s: State, at: float) -> Step:
    """What is waited for: whenever it changes, and once more when it has been the same for a while."""
    reason = waiting(s)
    s = _but(s, look_due=None)
    if reason != s.reason:
        return _but(s, reason=reason, quiet_due=at + QUIET), (), (events.Waiting(reason),)
    if _due(s.quiet_due, at):
        return _but(s, quiet_due=None), (), (events.Waiting(reason, lasts=True),)
    return s, (), ()


def _perhaps_over(now: Step, at: float) -> Step:
    """Where the last round is merged and reported, the broker is left tidy."""
    s, actions, facts = now
    if s.rounds.phase != "finished" or s.unlooked or s.phase != "running":
        return now
    s = _but(s, phase="clearing", end_due=at if s.searched else at + SEARCH)
    return s, (*actions, _state(s, "finished"), ClearModels()), facts


def _ending(s: State, event: Event) -> Step:
    """The run is over: nothing that devices say changes anything, and they read so when they ask the broker."""
    match event:
        case Connected() if s.phase != "ended":
            return s, (Listen(), _state(s)), (events.Connected(),)
        case Disconnected(reason=reason):
            return s, (), (events.Disconnected(reason),)
        case Searched(at) if s.phase == "clearing":
            return _leave(s, (ClearLeftovers(), _state(s)), at)
        case Woken(at) if s.phase == "clearing" and _due(s.end_due, at):  # the last word twice: nobody else says it
            return _leave(s, (ClearLeftovers(), _state(s)), at)
        case Woken(at, flushed) if s.phase == "leaving":
            return _leaving(s, at, flushed)
        case _:
            return s, (), ()


def _leave(s: State, actions: tuple[Action, ...], at: float) -> Step:
    return _but(s, phase="leaving", end_due=at + FLUSH, poll_due=at), actions, ()


def _leaving(s: State, at: float, flushed: bool) -> Step:
    if not flushed and not _due(s.end_due, at):
        return _but(s, poll_due=at + POLL), (), ()
    s = _but(s, phase="ended", end_due=None, poll_due=None)
    total = s.total + s.since_merge
    return s, (Leave(not s.stopped, total, s.refusals, at - s.began),), ()


FIELDS = frozenset(one.name for one in fields(State))


def _but(s: State, **changes: Any) -> State:
    """The same state but for these fields: `dataclasses.replace` would look at all forty for every event."""
    assert changes.keys() <= FIELDS, changes.keys() - FIELDS  # noqa: S101 - a typing error of ours
    other = object.__new__(State)
    other.__dict__.update(s.__dict__, **changes)
    return other


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _state(s: State, standing: Standing | None = None) -> SayState:
    known: dict[rounds.Phase, Standing] = {"open": "training", "merging": "training", "finished": "finished"}
    return SayState(standing or known.get(s.rounds.phase, "gathering"), s.rounds.round, len(s.fleet))


T = TypeVar("T")


def _each(now: Step, items: Iterable[T], more: Callable[[State, T], Step]) -> Step:
    for item in items:
        s, did, told = more(now[0], item)
        now = s, (*now[1], *did), (*now[2], *told)
    return now


def _then(now: Step, more: Callable[[State], Step]) -> Step:
    s, actions, facts = now
    s, did, told = more(s)
    return s, (*actions, *did), (*facts, *told)


def _after(actions: tuple[Action, ...], now: Step) -> Step:
    return now[0], (*actions, *now[1]), now[2]


def _told(facts: Fact | tuple[Fact, ...], now: Step) -> Step:
    first = (facts,) if isinstance(facts, Fact) else facts
    return now[0], now[1], (*first, *now[2])
