"""Buffered rounds, which wait for no device (FedBuff, Nguyen et al., 2022): pure, `step(state, event) -> state,
actions`.

    starting  ── DeviceJoined, RunResumed ────────────▶ open       start_with present, or the first device
    gathering ── DeviceJoined, RunResumed ────────────▶ open       asked anew, as models have other bytes now
    open      ── DeviceAnswered, RunResumed ──────────▶ merging    the buffer is full
    open      ── TimerExpired ────────────────────────▶ merging    time is up, and the buffer is not empty
    merging   ── RoundMerged ─────────────────────────▶ open       the next round, with the answers that came meanwhile;
                                                                   or the last model's evaluation, which rounds.py has
    merging   ── RoundMerged ─────────────────────────▶ finished   it was the last round, or enough is known
    merging   ── RunResumed ──────────────────────────▶ open       that evaluation is put off, as more rounds are wanted

The picture is checked against what the machine does (tests/coordinator/decide/test_diagrams.py).

A round is one merge, of `rules.quorum` answers or more. `rules.cohort` devices are at work at any time: one that
answers is replaced by another, which gets the newest model. The round in a task and in its answer names the model that
the device began from; how many merges lie between is the answer's staleness. So an answer has a base and not a round of
its own:

    round in hand              7        8                 9
    asked in 7  ───────────────┼────────┼──── answered, merged in 8: staleness 1
    asked in 7  ───────────────┼────────┼─────────────────┼──── answered, merged in 9: staleness 2

House rules, besides those of rounds.py
  1. A device counts at most once in a merge. One that has answered is asked again when that merge is done. 2. No device
  is asked while a round is merged: the next model is a moment away. Answers that come meanwhile count in the
     next round; where there is none that trains, they are late.
  3. A device that is lost keeps its work, and its place is taken. Back in time, it goes on with what it has: its answer
     counts unless it began more than `rules.staleness` rounds before the merge it would be in ("stale").
  4. Work is given up when it has become too old, or when its device was silent for more than a whole deadline in which
     nothing was merged. The device may then be asked anew, with the newest model, after all devices that are not
     silent.
  5. When a deadline has passed without a merge, whatever is in the buffer is merged, be it one answer.
"""

from dataclasses import replace

from coordinator.decide.rounds import (
    AcceptAnswer,
    Action,
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    Finish,
    IgnoreAnswer,
    Invite,
    MergeRound,
    Reason,
    RoundMerged,
    Rounds,
    RunResumed,
    SetTimer,
    Step,
    TimerExpired,
    Verdict,
    Work,
    cleared,
    finish,
    gather,
    knowing,
    order,
    some,
)
from edgefl.learn.selection.base import Candidate


def step(s: Rounds, event: Event) -> Step:  # noqa: PLR0911  one event, one line
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
            return _filled(replace(s, present=s.present - {device}))
        case TimerExpired(round, attempt) if (round, attempt) == (s.round, s.attempt) and s.phase == "open":
            return _expired(s)
        case RoundMerged(round, done=done) if s.phase == "merging" and (done or round >= s.round):
            return _merged(s, round, done)
        case _:
            return s, ()


def outstanding(s: Rounds) -> tuple[str, ...]:
    """Who is at work and here, in the order they were asked; not who has another run to work for first."""
    return tuple(device for device in s.work if device in s.present and device not in s.busy)


def oldest_welcome(s: Rounds) -> int:
    """The round before whose model no answer may have begun."""
    return max(1, _target(s) - s.rules.staleness)


def waiting(s: Rounds) -> str:
    """Why the coordinator waits, in one line for a human."""
    names = sorted(outstanding(s))
    match s.phase:
        case "starting" | "gathering":
            return f"round {s.round} needs {_needed(s)} devices, have {len(s.present)}"
        case "open":
            at_work = f"{len(names)} at work ({some(names)})" if names else "no device is at work"
            declined = f", {len(s.declined)} declined ({some(sorted(s.declined))})" if s.declined else ""
            return f"round {s.round}: {len(s.answered)} of {s.rules.quorum} answers; {at_work}{declined}"
        case "merging":
            return f"round {s.round}: merging {len(s.answered)} answers; {len(names)} at work"
        case "finished":
            return f"finished after {s.round} rounds"


# ── whom to ask ──────────────────────────────────────────────────────────────────────────────────────────────


def opened(s: Rounds) -> Step:
    """Begin the round, with the devices that are at work already and the newest model for others."""
    s = replace(s, phase="open", attempt=s.attempt + 1, opening=s.attempt + 1, purpose="train", declined=frozenset())
    s = replace(s, draw=s.rules.draw(s.round), knew=s.known, work=_not_too_old(s))
    s, asked = _filled(s)
    s, closed = _settled(s)
    return s, (*asked, _timer(s), *closed)


def _filled(s: Rounds) -> Step:
    """Ask free devices, up to the number that may be at work."""
    room = s.rules.cohort - len(outstanding(s))
    free = s.present - s.work.keys() - s.answered - s.declined
    if s.phase != "open" or room <= 0 or not free:
        return s, ()
    willing = sorted(order(s, s.present), key=lambda device: s.known[device].failures if device in s.known else 0)
    asked = tuple(device for device in willing if device in free)[:room]
    return replace(s, work={**s.work, **dict.fromkeys(asked, Work(s.round, s.attempt))}), _invitation(s, asked)


def _invitation(s: Rounds, asked: tuple[str, ...]) -> tuple[Action, ...]:
    return (Invite(s.round, asked, s.attempt),)


def _again(s: Rounds, devices: tuple[str, ...]) -> tuple[Action, ...]:
    """Say again what these have in hand: a device that is at it goes on, one that lost it begins."""
    named = sorted({(s.work[device].round, s.work[device].attempt) for device in devices})
    groups = ((one, tuple(device for device in devices if s.work[device] == Work(*one))) for one in named)
    return tuple(Invite(round, group, attempt) for (round, attempt), group in groups)


def _not_too_old(s: Rounds) -> dict[str, Work]:
    return {device: work for device, work in s.work.items() if work.round >= oldest_welcome(s)}


def _joined(s: Rounds, device: str) -> Step:
    match s.phase:
        case "starting" | "gathering" if len(s.present) >= _needed(s):
            return opened(s)
        case "open" | "merging" if device in s.work:
            s = replace(s, busy=s.busy - {device})
            return s, _again(s, (device,))
        case _:
            return _filled(s)


def _needed(s: Rounds) -> int:
    return (s.rules.start_with or 1) if s.phase == "starting" else 1


def _resumed(s: Rounds) -> Step:  # noqa: PLR0911  one phase, one line or two
    if s.phase in ("open", "merging") and s.purpose != "train":
        return opened(cleared(s))  # it was to evaluate the last model, and more rounds are wanted now
    match s.phase:
        case "starting" | "gathering" if len(s.present) >= _needed(s):
            return opened(s)
        case "open":
            s, closed = _settled(s)
            if closed:
                return s, closed
            again = _again(s, outstanding(s))
            s, asked = _filled(s)
            return s, (*again, *asked, _timer(s))
        case "merging":
            return s, (_merge(s),)
        case "finished":
            return s, (Finish(s.round),)
        case _:
            return s, ()


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(s: Rounds, device: str, round: int) -> Verdict:
    """What would become of an answer that came now."""
    reason = _objection(s, device, round)
    return AcceptAnswer(device, round) if reason is None else IgnoreAnswer(device, round, reason)


def _objection(s: Rounds, device: str, round: int) -> Reason | None:
    """Why a word of this device about what it began with this round's model cannot be used; None if it can."""
    work = s.work.get(device)
    last = s.phase == "merging" and not _trains(s, s.round + 1)
    grounds: tuple[tuple[Reason, bool], ...] = (
        ("finished", s.phase == "finished"),
        ("future", round > s.round),
        ("duplicate", s.counted.get(device) == round),  # its receipt was lost
        ("late", last),
        ("stale", round < oldest_welcome(s)),
        ("late", work is not None and round < work.round),  # it was asked anew since
        ("not invited", work is None or round != work.round),
    )
    return next((reason for reason, holds in grounds if holds), None)


def _answered(s: Rounds, answer: DeviceAnswered) -> Step:
    device, round = answer.device, answer.round
    decision = verdict(s, device, round)
    if not isinstance(decision, AcceptAnswer):
        return s, (decision,)
    news = {name: value for name, value in answer.news.items() if name != "loss"}
    known = knowing(s, device, **news) if news else s.known
    heard = s.heard if answer.loss is None else {**s.heard, device: answer.loss}
    s = replace(_free(s, device), counted={**s.counted, device: round}, known=known, heard=heard)
    if s.phase == "merging":
        return replace(s, later=s.later | {device}), (decision,)
    s, closed = _settled(replace(s, answered=s.answered | {device}))
    s, asked = _filled(s)
    return s, (decision, *closed, *asked)


def _declined(s: Rounds, device: str, round: int) -> Step:
    reason = _objection(s, device, round)
    if reason is not None:
        return s, (IgnoreAnswer(device, round, reason),)
    return _filled(replace(_free(s, device), declined=s.declined | {device}))


def _busy(s: Rounds, device: str, round: int) -> Step:
    """It keeps the task for when it is free, and another one is asked meanwhile."""
    reason = _objection(s, device, round)
    if reason is None and device in s.busy:
        reason = "duplicate"
    if reason is not None:
        return s, (IgnoreAnswer(device, round, reason),)
    return _filled(replace(s, busy=s.busy | {device}))


def _free(s: Rounds, device: str) -> Rounds:
    """The device has nothing in hand."""
    work = {other: one for other, one in s.work.items() if other != device}
    return replace(s, work=work, busy=s.busy - {device})


# ── merges, and time ─────────────────────────────────────────────────────────────────────────────────────────


def _settled(s: Rounds) -> Step:
    return _closed(s) if len(s.answered) >= s.rules.quorum else (s, ())


def _closed(s: Rounds) -> Step:
    known = {**s.known}
    for device in s.answered:
        one = known.get(device, Candidate(device))
        known[device] = replace(one, counted=s.round, failures=0, loss=s.heard.get(device, one.loss))
    heard = {device: loss for device, loss in s.heard.items() if device not in s.answered}
    s = replace(s, phase="merging", known=known, heard=heard)
    return s, (_merge(s),)


def _expired(s: Rounds) -> Step:
    """Nothing was merged for a whole deadline."""
    if s.answered:
        return _closed(s)
    silent = [device for device in outstanding(s) if s.work[device].attempt < s.attempt]
    for device in silent:
        failures = s.known.get(device, Candidate(device)).failures + 1
        s = replace(_free(s, device), known=knowing(s, device, failures=failures))
    s = replace(s, attempt=s.attempt + 1, declined=frozenset(), busy=frozenset())
    again = _again(s, outstanding(s))
    s, asked = _filled(s)
    return s, (*again, *asked, _timer(s))


def _merged(s: Rounds, round: int, done: bool) -> Step:
    s = replace(s, unmerged=done and round < s.round)
    if done or not s.rules.schedule.follows(round):
        return finish(s, round)
    s = replace(s, round=round + 1, answered=s.later, later=frozenset())
    return opened(s) if _trains(s, s.round) else gather(s)


# ── small words ──────────────────────────────────────────────────────────────────────────────────────────────


def _target(s: Rounds) -> int:
    """The round that an answer would be merged in if it came now."""
    return s.round + (s.phase == "merging")


def _trains(s: Rounds, round: int) -> bool:
    return s.rules.schedule.purpose(round) == "train"


def _merge(s: Rounds) -> MergeRound:
    return MergeRound(s.round, tuple(sorted(s.answered)))


def _timer(s: Rounds) -> SetTimer:
    return SetTimer(s.round, s.attempt, s.rules.deadline)
