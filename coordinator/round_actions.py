"""What follows from the round machine's word: devices are asked, answers counted, rounds merged. Pure."""

from dataclasses import replace

from coordinator import rounds
from coordinator import vocabulary as words
from coordinator.roster import Device
from coordinator.rounds import Rounds
from coordinator.state import State, Step, but, each, say_state, then
from edgefl import events


def feed(s: State, event: rounds.Event, at: float, answer: words.Answered | None = None) -> Step:
    """One event into the round machine, and what follows from it here."""
    before = s.rounds
    after, actions = rounds.step(before, event)
    extended = isinstance(event, rounds.Expired) and before.opening == after.opening and after.attempt > before.attempt
    told = (events.Extended(before.round, rounds.outstanding(before)),) if extended else ()
    fed = (*s.fed, event) if after != before else s.fed
    now: Step = but(s, rounds=after, fed=fed), (), told
    stuck = isinstance(event, rounds.Expired) and after != before and after.phase != "merging"
    if stuck and s.listened is not None:  # the word that somebody has left, or come, may be lost
        now = then(now, lambda s: (but(s, listened=at), (words.ListenAgain(),), ()))
    return each(now, actions, lambda s, action: _follow(s, action, before, at, answer))


def _follow(  # noqa: PLR0911  one action, one case
    s: State, action: rounds.Action, before: Rounds, at: float, answer: words.Answered | None
) -> Step:
    match action:
        case rounds.Invite(devices=devices):
            return ask(s, devices, s.model, at) if s.model else prepare(but(s, held=True))
        case rounds.SetTimer(seconds=seconds):
            return but(s, timer=action, timer_due=None if s.held else at + seconds), (), ()
        case rounds.Accept(device, round) if answer is not None:
            s = but(_paced(s, answer), answers={**s.answers, device: words.Kept(round, answer.digest)})
            return s, (words.Accept(device, round, answer.digest),), (answer_fact(s, answer, "accepted"),)
        case rounds.Late(device, round) if answer is not None:
            s = but(_paced(s, answer), late={**s.late, device: words.Kept(round, answer.digest)})
            s = but(s, since_merge=s.since_merge + words.Totals(late=1))
            told = answer_fact(s, answer, "late", "kept by policy")
            return s, (words.Late(device, round, answer.digest),), (told,)
        case rounds.Ignore(reason=reason) if answer is not None:
            return ignored(s, answer, reason)
        case rounds.Merge():
            return _merge(s, action, again=before.phase == "merging")
        case rounds.Abandon(round, reason):
            gone = tuple(kept.digest for kept in s.answers.values())
            return but(s, answers={}, astray=round), (words.Forget(gone),), (events.Abandoned(round, reason),)
        case rounds.Finish():
            return but(s, timer=None, timer_due=None, held=False), (), ()
        case _:
            return s, (), ()


def ignored(s: State, answer: words.Answered, reason: rounds.Reason) -> Step:
    s = but(s, since_merge=s.since_merge + words.Totals(late=reason == "late"))
    verdict = words.Ignore(answer.device, answer.round, answer.digest, reason)
    return s, (verdict,), (answer_fact(s, answer, "late" if reason == "late" else "ignored", reason),)


def answer_fact(s: State, answer: words.Answered, verdict: events.Verdict, reason: str = "") -> events.Answered:
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


def _paced(s: State, answer: words.Answered) -> State:
    device = s.devices.get(answer.device)
    if device is None or not answer.seconds_per_step:
        return s
    return but(s, devices={**s.devices, answer.device: replace(device, seconds_per_step=answer.seconds_per_step)})


def ask(s: State, ids: tuple[str, ...], model: words.Model, at: float) -> Step:
    round, opening, counted = s.rounds.round, s.rounds.opening, s.rounds.counted
    # Who is known from before a restart only, and not heard of since, is asked when it comes back.
    here = {id: s.devices[id] for id in ids if id in s.devices}
    fetched = sum(_to_fetch(device, model) for device in here.values())
    devices = {**s.devices, **{id: _asked(device, round, opening, at) for id, device in here.items()}}
    waited = s.waited if s.waited[0] == round else (round, at - s.since)
    s = but(s, devices=devices, waited=waited, since_merge=s.since_merge + words.Totals(bytes_down=fetched))
    invitees = tuple(
        words.Invitee(
            id, device.announced.installation, counted.get(id, 0), device.seconds_per_step, device.holds == round
        )
        for id, device in here.items()
    )
    s, state = _say_training(s, round)
    return s, (*state, words.Ask(round, opening, invitees)), (events.Asked(round, opening, ids, fetched),)


def _to_fetch(device: Device, model: words.Model) -> int:
    """Bytes of the models that the device needs and does not have."""
    if device.holds == model.round:
        return 0
    return model.bytes + (0 if device.holds == model.round - 1 else model.previous)


def _asked(device: Device, round: int, opening: int, at: float) -> Device:
    since = device.asked_at if device.asked == (round, opening) else at
    return replace(device, holds=round, asked=(round, opening), asked_at=since)


def _say_training(s: State, round: int) -> tuple[State, tuple[words.Action, ...]]:
    """Tell every device of the round, if somebody may still work for one that is over; others know, or need not."""
    (last_round, fleet), now = s.announced, (round, len(s.fleet))
    if fleet == now[1] and not last_round <= s.astray < round:
        return s, ()
    return but(s, announced=now), (say_state(s, "training"),)


def _merge(s: State, merge: rounds.Merge, *, again: bool) -> Step:
    answers = {id: s.answers[id] for id in merge.devices}
    population = s.population if again else len(s.fleet)
    total = s.total + s.since_merge
    waited = s.waited[1] if s.waited[0] == merge.round else 0.0
    action = words.Merge(merge.round, answers, s.late, population, s.since_merge, total, s.since, waited)
    missing = tuple(sorted(set(s.rounds.asked) - s.rounds.answered))
    told = () if again else (events.Closed(merge.round, merge.devices, missing, tuple(sorted(s.late))),)
    gone = tuple(kept.digest for id, kept in s.answers.items() if id not in answers)
    s = but(s, answers={}, late={}, since_merge=words.NOTHING, total=total, timer=None, timer_due=None)
    late = (id for id, device in s.devices.items() if device.asked[0] == merge.round and id not in answers)
    astray = merge.round if missing or any(late) else s.astray
    s = but(s, unlooked=s.unlooked + s.looks, population=population, astray=astray)
    return s, (action, words.Forget(gone)) if gone else (action,), told


def prepare(s: State) -> Step:
    """Begin to make the job, unless that is done; it takes some seconds, so it is said."""
    if s.phase != "idle":
        return s, (), ()
    return but(s, phase="preparing"), (words.Prepare(),), (events.Preparing("preparing the model"),)
