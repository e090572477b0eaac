"""What follows from the round machine's word: devices are asked, answers counted, rounds merged. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from coordinator.decide import modes, rounds, vocabulary
from coordinator.decide.roster import Device
from coordinator.decide.rounds import Rounds
from coordinator.decide.state import State, Step, but, each, hearers, say_state, then
from edgefl.base import events
from edgefl.base.records import replace

MOST_TOGETHER = 256  # devices in one call: each hears the slots of all, which are 9 KB then
CONFIRM = 0.5  # seconds that a receipt waits for a task which says the same
NOBODY: Mapping[str, int] = {}


def feed(s: State, event: rounds.Event, at: float, answer: vocabulary.AnswerArrived | None = None) -> Step:
    """One event into the round machine, and what follows from it here."""
    before = s.rounds
    after, actions = modes.step(before, event)
    extended = (
        isinstance(event, rounds.TimerExpired) and before.opening == after.opening and after.attempt > before.attempt
    )
    told = (events.Extended(before.round, modes.outstanding(before)),) if extended else ()
    moved = after is not before and after != before
    now: Step = but(s, rounds=after, fed=(*s.fed, event)) if moved else s, (), told
    stuck = isinstance(event, rounds.TimerExpired) and moved and after.phase != "merging"
    if stuck and s.listened is not None:  # the message that a device has left, or come, may be lost
        now = then(now, lambda s: (but(s, listened=at), (vocabulary.ListenAgain(),), ()))
    return each(now, actions, lambda s, action: _follow(s, action, before, at, answer))


def _follow(  # noqa: PLR0911  one action, one case
    s: State, action: rounds.Action, before: Rounds, at: float, answer: vocabulary.AnswerArrived | None
) -> Step:
    match action:
        case rounds.Invite(round, devices, attempt):
            return ask(s, devices, (round, attempt), s.model, at) if s.model else prepare(but(s, held=True))
        case rounds.SetTimer(seconds=seconds):
            return but(s, timer=action, timer_due=None if s.held else at + seconds), (), ()
        case rounds.AcceptAnswer(device, round) if answer is not None:
            return _accepted(s, answer, vocabulary.Accept(device, round, answer.digest), at)
        case rounds.AcceptLateAnswer(device, round) if answer is not None:
            late = {**s.late, device: vocabulary.AnswerId(round, answer.digest)}
            s = but(s, late=late, devices=_paced(s, answer), since_merge=s.since_merge + vocabulary.Totals(late=1))
            told = answer_fact(s, answer, "late", "kept by policy")
            return s, (vocabulary.AcceptLate(device, round, answer.digest),), (told,)
        case rounds.IgnoreAnswer(reason=reason) if answer is not None:
            return ignored(s, answer, reason)
        case rounds.MergeRound():
            return _merge(s, action, again=(before.phase, before.round) == ("merging", action.round))
        case rounds.Abandon(round, reason):
            gone = tuple(kept.digest for kept in s.answers.values())
            return but(s, answers={}, astray=round), (vocabulary.DropAnswers(gone),), (events.Abandoned(round, reason),)
        case rounds.Finish():
            return but(s, timer=None, timer_due=None, held=False), (), ()
        case _:
            return s, (), ()


def _accepted(s: State, answer: vocabulary.AnswerArrived, accept: vocabulary.Accept, at: float) -> Step:
    """The answer counts, and its device will be told so: by its next task, or by a receipt if that takes long."""
    device, kept = accept.device, vocabulary.AnswerId(accept.round, accept.digest)
    s = but(
        s,
        devices=_paced(s, answer),
        answers={**s.answers, device: kept},
        unconfirmed={**s.unconfirmed, device: kept},
        confirm_due=s.confirm_due or at + CONFIRM,
    )
    told = answer_fact(s, answer, "accepted")
    concise = device in s.devices and s.devices[device].announced.concise
    if concise and s.rounds.rules.schedule.follows(kept.round):
        return s, (accept,), (told,)
    s, receipts, _ = confirm(s, {device})
    return s, (accept, *receipts), (told,)


def ignored(s: State, answer: vocabulary.AnswerArrived, reason: rounds.Reason) -> Step:
    s = but(s, since_merge=s.since_merge + vocabulary.Totals(late=reason == "late"))
    verdict = vocabulary.Ignore(answer.device, answer.round, answer.digest, reason)
    return s, (verdict,), (answer_fact(s, answer, "late" if reason == "late" else "ignored", reason),)


def answer_fact(
    s: State, answer: vocabulary.AnswerArrived, verdict: events.Verdict, reason: str = ""
) -> events.Answered:
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


def _paced(s: State, answer: vocabulary.AnswerArrived) -> Mapping[str, Device]:
    """All devices, knowing how fast this one was."""
    device = s.devices.get(answer.device)
    if device is None or not answer.seconds_per_step:
        return s.devices
    return {**s.devices, answer.device: replace(device, seconds_per_step=answer.seconds_per_step)}


def ask(s: State, ids: tuple[str, ...], task: tuple[int, int], model: vocabulary.PublishedModel, at: float) -> Step:
    """Ask these to work on a round, for the first time or again; the opening is the task's name."""
    (round, opening), counted = task, s.rounds.counted
    if round < s.models_since:  # published in an earlier life: who has it goes on, who has not is asked anew in time
        return s, (), ()
    # Who is known from before a restart only, and not heard of since, is asked when it comes back.
    here = {id: s.devices[id] for id in ids if id in s.devices}
    fetched = sum(_to_fetch(device, model) for device in here.values()) if round == model.round else 0
    devices = {**s.devices, **{id: _asked(device, round, opening, at) for id, device in here.items()}}
    waited = s.waited if s.waited[0] == s.rounds.round else (s.rounds.round, at - s.since)
    s = but(s, devices=devices, waited=waited, since_merge=s.since_merge + vocabulary.Totals(bytes_down=fetched))
    invitees = tuple(
        vocabulary.Invitee(
            id, device.announced.installation, counted.get(id, 0), device.seconds_per_step, device.holds == round
        )
        for id, device in here.items()
    )
    together = _together(s, tuple(here.values()), (round, opening))
    s, confirmed, _ = confirm(s, {id for id in here if id in s.unconfirmed}, implied=counted)
    s, state = _say_training(s, s.rounds.round)
    told = events.Asked(round, opening, ids, fetched, s.rounds.purpose)
    bystanders = len(hearers(s).difference(here)) if together else 0
    return s, (*confirmed, *state, vocabulary.Ask(round, opening, invitees, together, bystanders)), (told,)


def _together(s: State, asked: tuple[Device, ...], opening: tuple[int, int]) -> bool:
    """Return whether one call serves: if it asks most of those that would hear it, and none of them again.

    A device that is asked again may not have heard it, so it is told alone; and in buffered rounds each is told in
    the order of asking, which is the order they begin in.
    """
    if s.rounds.rules.buffered:
        return False
    able = all(device.announced.concise and device.asked != opening for device in asked)
    return able and 1 < len(asked) <= MOST_TOGETHER and 2 * len(asked) >= len(hearers(s))


# ── receipts ─────────────────────────────────────────────────────────────────────────────────────────────────


def confirm(s: State, devices: AbstractSet[str], implied: Mapping[str, int] = NOBODY) -> Step:
    """Tell these devices that their answers are safe; a task says it to those whom it names this round as counted."""
    owed = {id: s.unconfirmed[id] for id in sorted(devices)}
    rest = {id: kept for id, kept in s.unconfirmed.items() if id not in owed}
    unsaid = {id: kept for id, kept in owed.items() if implied.get(id) != kept.round}
    receipts = tuple(vocabulary.Confirm(id, kept.round, kept.digest) for id, kept in unsaid.items())
    return but(s, unconfirmed=rest, confirm_due=s.confirm_due if rest else None), receipts, ()


def _to_fetch(device: Device, model: vocabulary.PublishedModel) -> int:
    """Bytes of the models that the device needs and does not have."""
    if device.holds == model.round:
        return 0
    return model.bytes + (0 if device.holds == model.round - 1 else model.previous)


def _asked(device: Device, round: int, opening: int, at: float) -> Device:
    since = device.asked_at if device.asked == (round, opening) else at
    return replace(device, holds=round, asked=(round, opening), asked_at=since)


def _say_training(s: State, round: int) -> tuple[State, tuple[vocabulary.Action, ...]]:
    """Tell every device of the round, if one may still work for a round that is over; others know, or need not."""
    (last_round, fleet), now = s.announced, (round, len(s.fleet))
    if fleet == now[1] and not last_round <= s.astray < round:
        return s, ()
    return but(s, announced=now), (say_state(s, "training"),)


def _merge(s: State, merge: rounds.MergeRound, *, again: bool) -> Step:
    answers = {id: s.answers[id] for id in merge.devices}
    population = s.population if again else len(s.fleet)
    total = s.total + s.since_merge
    waited = s.waited[1] if s.waited[0] == merge.round else 0.0
    unmerged = s.late if s.rounds.purpose != "train" else {}  # nothing is, so late ones do not count
    late = {} if unmerged else s.late
    action = vocabulary.Merge(merge.round, answers, late, population, s.since_merge, total, s.since, waited)
    missing = tuple(sorted(set(s.rounds.asked) - s.rounds.answered))
    told = () if again else (events.Closed(merge.round, merge.devices, missing, tuple(sorted(late))),)
    gone = tuple(kept.digest for id, kept in s.answers.items() if id not in answers)
    gone = (*gone, *(kept.digest for kept in unmerged.values()))
    s = but(s, answers={}, late={}, since_merge=vocabulary.NOTHING, total=total, timer=None, timer_due=None)
    slow = (id for id, device in s.devices.items() if device.asked[0] == merge.round and id not in answers)
    waits = not modes.waits_for_nobody(s.rounds)  # if not, every device at work is welcome
    astray = merge.round if waits and (missing or any(slow)) else s.astray
    s = but(s, unlooked=s.unlooked + s.looks, population=population, astray=astray)
    return s, (action, vocabulary.DropAnswers(gone)) if gone else (action,), told


def prepare(s: State) -> Step:
    """Begin to make the job, unless that is done; it takes some seconds, so it is said."""
    if s.phase != "idle":
        return s, (), ()
    return but(s, phase="preparing"), (vocabulary.Prepare(),), (events.Preparing("preparing the model"),)
