"""Everything the coordinator decides: a pure function, `step(state, event) -> state, actions, facts`.

    idle      ── Announced, Woken ────────────▶ preparing  a device is there, or a round from before a restart
    idle      ── CoordinatorConnected ────────▶ preparing  the same
    preparing ── Prepared ────────────────────▶ running    the model is there, and all that was promised before
    preparing ── Prepared ────────────────────▶ clearing   the run had ended already
    running   ── Merged, Handed ──────────────▶ clearing   the last round is merged, and its report is made
    running   ── ReportsCompleted ────────────▶ clearing   the same
    clearing  ── Searched, Woken ─────────────▶ leaving    the broker has told what stands there, or takes too long
    leaving   ── Woken ───────────────────────▶ ended      everything is sent, or takes too long
    idle      ── Stop, RunFailed ─────────────▶ leaving    an end is asked for, or something broke
    preparing ── Stop, RunFailed ─────────────▶ leaving
    running   ── Stop, RunFailed ─────────────▶ leaving

The picture is checked against what the machine does (tests/coordinator/decide/test_diagrams.py). Its events and actions
are in vocabulary.py, its state in state.py. What concerns devices is decided in devices.py, what follows from the word
of the round machine in round_actions.py. Inside stand smaller machines: `rounds` (whom rounds ask, when they close;
`buffered` where they wait for no device, `modes` chooses), `roster` (which device may have which name), `strikes`
(which are in quarantine).

House rules
  1. Ids, numbers and digests only: tensors and frames stay in the shell under their digest.
  2. Every answer gets a verdict, as an action: Accept, AcceptLate, Ignore or Refuse. It is opened only if it
     can count.
  3. Time is told by the events (`at`, on a clock that only grows). `deadline` says when a `Woken` is due.
  4. A state with other rounds than the one before is written down before anything is done about it; devices alone are
     asked for the next round meanwhile, if that follows from what was written when the last one closed
     (group_commit.py).
  5. A fact is told where it is decided, and has its time from the shell. What one device can bring about without end is
     told to all views; only a part of it is written down in an hour (story_limit.py).
"""

from math import inf

from coordinator.decide import devices, modes, rounds, vocabulary
from coordinator.decide.round_actions import answer_fact, ask, confirm, feed, ignored
from coordinator.decide.state import State, Step, but, doing, is_due, online, say_state, telling, then, unfinished
from edgefl.base import events

GLANCE = 0.25  # seconds between two looks at what is waited for
QUIET = 15.0  # seconds after which it is told again what is waited for, once for each reason
SEARCH = 5.0  # seconds for a broker to tell what stands there
FLUSH = 5.0  # seconds for the last messages to be sent
POLL = 0.05  # seconds between two looks at them


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(s: State, event: vocabulary.Event) -> Step:
    """The state after this event, what is to be done about it, and what there is to tell."""
    after, actions, facts = _step(but(s, fed=(), left_out=frozenset()) if s.fed or s.left_out else s, event)
    story, left_out = after.story.admitted(facts, event.at, heeded=bool(after.fed))
    if story is not after.story:
        after = but(after, story=story, left_out=left_out)
    changed = after.rounds is not s.rounds or after.phase != s.phase or (after.paused, after.away) != (s.paused, s.away)
    if changed and after.look_due is None:
        after = but(after, look_due=event.at + GLANCE)
    return after, actions, facts


def _step(s: State, event: vocabulary.Event) -> Step:  # noqa: PLR0911, PLR0912, C901  one event, one line
    match event:
        case _ if not unfinished(s):
            return _ending(s, event)
        case vocabulary.CoordinatorConnected(at):
            return devices.connected(but(s, away=""), at)
        case vocabulary.CoordinatorDisconnected(reason=reason):
            return but(s, away=reason, listened=None), (), (events.Disconnected(reason),)
        case vocabulary.Announced(retained=True) if devices.known_so(s, event) or event.announcement.site in s.severed:
            return s, (), ()
        case vocabulary.Announced():
            return devices.announced(s, event)
        case vocabulary.Unreadable():
            return devices.unreadable(s, event)
        case rounds.DeviceDeclined(device, round, at, reason):
            return telling(events.Declined(device, round, reason), feed(devices.heard(s, device), event, at))
        case rounds.DeviceBusy(device, round, at, reason):
            return telling(events.Busy(device, round, reason), feed(devices.heard(s, device), event, at))
        case vocabulary.Begun(_, device):
            return devices.heard(s, device), (), (events.Sending(device),)
        case vocabulary.ProgressReported(_, device, round, steps, vitals):
            facts = events.Progressed(device, round, steps), *([vitals] if vitals else [])
            return devices.heard(s, device), (), facts
        case vocabulary.Offered():
            return _offered(devices.heard(s, event.device), event)
        case vocabulary.AnswerArrived():
            return _answered(devices.heard(s, event.device), event)
        case vocabulary.Usable(at, digest, loss) if digest in s.opened:
            s, answer = _closed(s, digest)
            pace, seconds = answer.seconds_per_step or None, answer.seconds_per_step * answer.steps or None
            return feed(s, rounds.DeviceAnswered(answer.device, answer.round, at, pace, seconds, loss), at, answer)
        case vocabulary.Unusable(digest=digest) if digest in s.opened:
            return _unusable(*_closed(s, digest), event)
        case vocabulary.Misbehaved(
            at, device, code, reason, frame
        ):  # unless refused, it would be offered again and again
            refused = (vocabulary.Refuse(device, s.rounds.round, frame, reason),) if frame else ()
            return doing(refused, devices.misbehaved(s, device, code, reason, at))
        case vocabulary.Revoked():
            return devices.revoked(s, event)
        case vocabulary.MembersRead():
            return devices.enrolled(s, event)
        case vocabulary.LabelsRead():
            return devices.labelled(s, event)
        case vocabulary.SiteLost(at, site):
            return devices.severed(s, site, at)
        case vocabulary.SiteBack(site=site):
            return devices.restored(s, site)
        case vocabulary.Expiring(_, device, request):
            return devices.heard(s, device), (vocabulary.Certify(device, request),), ()
        case vocabulary.CertificateSigned(_, device, certificate):
            return s, (vocabulary.SendCertificate(device, certificate),), (events.Certified(device),)
        case vocabulary.Prepared() if s.phase == "preparing":
            return _prepared(s, event)
        case vocabulary.Merged() if s.phase == "running":
            return _merged(s, event)
        case vocabulary.Handed() if s.phase == "running":
            return _handed(s, event)
        case vocabulary.ReportsCompleted(at, reports) if s.phase == "running":
            return _perhaps_over((but(s, unlooked=s.unlooked - 1), (), reports), at)
        case vocabulary.WorkPaused(reason=reason):
            facts = (events.Paused(reason),) if reason and not s.paused else ()
            return but(s, paused=reason), (), facts
        case vocabulary.Searched():
            return but(s, searched=True), (), ()
        case vocabulary.Woken(at):
            return _woken(s, at)
        case vocabulary.Stop(at) | vocabulary.RunFailed(at):
            phase: vocabulary.RunPhase = "finished" if s.rounds.phase == "finished" else "gathering"
            s, confirmed, _ = confirm(s, s.unconfirmed.keys())
            return _leave(but(s, stopped=True), (*confirmed, say_state(s, phase), vocabulary.ClearModels()), at)
        case _:
            return s, (), ()


def deadline(s: State) -> float | None:
    """When a `Woken` is due."""
    at_work = s.timer_due, s.confirm_due, s.unheard_due, s.unsteady_due, s.story.due, s.look_due, s.quiet_due
    due = (*at_work, s.conduct.deadline(), devices.listens(s)) if unfinished(s) else (s.end_due, s.poll_due)
    return min([one for one in due if one is not None], default=None)


def waiting(s: State) -> str:
    """Why the coordinator waits, in one line for a human."""
    if s.paused:
        return f"paused: {s.paused}"
    if s.away:
        return f"the broker is away ({s.away})"
    if s.phase == "preparing":
        return "preparing the model"
    left_out = sum(online(s, id) for id in s.excluded) if s.rounds.phase in ("starting", "gathering") else 0
    more = f"; {left_out} more are there, and rounds.where does not mean them" if left_out else ""
    return modes.waiting(s.rounds) + more


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _offered(s: State, offer: vocabulary.Offered) -> Step:
    device, round, digest = offer.device, offer.round, offer.digest
    if not offer.ours:
        why = f"'{device}' sent a message for another run of this job"
        foreign = devices.misbehaved(s, devices.NAMELESS, "update.foreign", why, offer.at)
        return doing((vocabulary.Refuse(device, round, digest, "of another run"),), foreign)
    match modes.verdict(s.rounds, device, round):
        case rounds.IgnoreAnswer(reason=reason):
            return s, (vocabulary.Ignore(device, round, digest, reason),), ()
        case _:
            return s, (vocabulary.RequestMissing(device, digest, offer.size),), ()


def _answered(s: State, answer: vocabulary.AnswerArrived) -> Step:
    device, round, digest = answer.device, answer.round, answer.digest
    came = s.since_merge + vocabulary.Totals(bytes_up=answer.size)
    if answer.foreign:
        return _refused(but(s, since_merge=came), answer, "update.foreign", answer.foreign, "of another run")
    if s.phase in ("idle", "preparing"):
        return _refused(but(s, since_merge=came), answer, "update.early", "no round has been opened yet")
    match modes.verdict(s.rounds, device, round):
        case rounds.IgnoreAnswer(reason=reason):  # not opened, not looked at: it costs and teaches nothing
            return ignored(but(s, since_merge=came), answer, reason)
        case _:
            look = vocabulary.Open(device, digest)
            return but(s, since_merge=came, opened={**s.opened, digest: answer}), (look,), ()


def _closed(s: State, digest: bytes) -> tuple[State, vocabulary.AnswerArrived]:
    """The answer that was looked into."""
    rest = {other: answer for other, answer in s.opened.items() if other != digest}
    return but(s, opened=rest), s.opened[digest]


def _unusable(s: State, answer: vocabulary.AnswerArrived, event: vocabulary.Unusable) -> Step:
    declined = rounds.DeviceDeclined(answer.device, answer.round, event.at, event.reason)
    refused = _refused(s, answer, event.code, event.reason)
    return then(refused, lambda s: feed(s, declined, event.at))


def _refused(s: State, answer: vocabulary.AnswerArrived, code: str, reason: str, message: str = "") -> Step:
    verdict = vocabulary.Refuse(answer.device, answer.round, answer.digest, message or reason)
    told = answer_fact(s, answer, "refused", reason)
    return doing((verdict,), telling(told, devices.misbehaved(s, answer.device, code, reason, answer.at)))


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


def _prepared(s: State, event: vocabulary.Prepared) -> Step:
    at, recalled, resumed, held = event.at, event.recalled, s.resumed, s.held
    s = but(s, phase="running", model=event.model, resumed=False, held=False)
    s = but(s, models_since=event.model.round if event.model else 0)
    publish: tuple[vocabulary.Action, ...] = (vocabulary.Publish(),) if event.model else ()
    if not resumed:
        return doing(publish, telling(event.told, _open(s, at) if held else (s, (), ())))
    s = but(devices.unheard(s, s.unheard, at), answers=recalled.answers, late=recalled.late)
    s = but(s, unconfirmed=recalled.answers, confirm_due=at if recalled.answers else None)
    s = but(s, population=recalled.population, total=recalled.total)
    if event.round >= s.rounds.round and s.rounds.phase == "merging":  # merged and saved, but not yet written down
        merged = rounds.RoundMerged(event.round, at, done=event.done)
        s = _since_closing(but(s, answers={}, late={}), recalled)
        return _perhaps_over(doing(publish, telling(event.told, feed(s, merged, at))), at)
    now = feed(s, rounds.RunResumed(at), at)
    if s.rounds.phase == "merging":
        now = then(now, lambda s: (_since_closing(s, recalled), (), ()))
    return _perhaps_over(doing((vocabulary.Tell(event.told), *publish), now), at)


def _since_closing(s: State, recalled: vocabulary.Recalled) -> State:
    """With the answers that came after the round in hand was closed: the next has them, as late ones or not."""
    return but(s, **{"answers" if modes.waits_for_nobody(s.rounds) else "late": recalled.later})


def _open(s: State, at: float) -> Step:
    """Ask the devices of a round that has waited for its model, those that are still here; its time begins."""
    s = but(s, timer_due=at + s.timer.seconds if s.timer else None)
    ids = modes.outstanding(s.rounds)
    return ask(s, ids, (s.rounds.round, s.rounds.opening), s.model, at) if s.model and ids else (s, (), ())


def _merged(s: State, event: vocabulary.Merged) -> Step:
    at = event.at
    s = but(s, model=event.model, since=at)
    now = feed(s, rounds.RoundMerged(event.round, at, done=event.done), at)
    in_use = frozenset(work.round for work in now[0].rounds.work.values())
    publish: tuple[vocabulary.Action, ...] = (vocabulary.Publish(in_use),) if event.model else ()
    return _perhaps_over(doing(publish, telling(event.reports, now)), at)


def _handed(s: State, event: vocabulary.Handed) -> Step:
    """A gateway: its round is the one that it was asked for, whatever became of the last one."""
    at, model = event.at, event.model
    s = but(s, model=model or s.model, since=at, paused="")
    now = feed(s, rounds.Overtaken(model.round if model else s.rounds.rules.rounds + 1, at), at)
    return _perhaps_over(doing((vocabulary.Publish(),) if model else (), now), at)


# ── time, and the end ────────────────────────────────────────────────────────────────────────────────────────


def _woken(s: State, at: float) -> Step:
    now: Step = s, (), ()
    if s.timer is not None and is_due(s.timer_due, at):
        expired = rounds.TimerExpired(s.timer.round, s.timer.attempt, at)
        now = then(now, lambda s: feed(but(s, timer=None, timer_due=None), expired, at))
    if is_due(s.confirm_due, at):
        now = then(now, lambda s: confirm(s, s.unconfirmed.keys()))
    if is_due(s.unheard_due, at):
        now = then(now, lambda s: devices.forgotten(s, at))
    if is_due(s.unsteady_due, at):
        now = then(now, lambda s: devices.settled(s, at))
    if is_due(s.story.due, at):
        now = then(now, lambda s: _left_out(s, at))
    if is_due(s.conduct.deadline(), at):
        now = then(now, lambda s: devices.released(s, at))
    if is_due(devices.listens(s), at):
        now = then(now, lambda s: (but(s, listened=at), (vocabulary.ListenAgain(),), ()))
    if is_due(s.look_due, at) or is_due(s.quiet_due, at):
        now = then(now, lambda s: _tell_why(s, at))
    return now


def _left_out(s: State, at: float) -> Step:
    """Of the hours that have ended by then, tell how much is not in the story."""
    story, facts = s.story.ended(at, lambda device: online(s, device))
    return but(s, story=story), (), facts


def _tell_why(s: State, at: float) -> Step:
    """What is waited for: whenever it changes, and once more when it has been the same for a while."""
    reason = waiting(s)
    s = but(s, look_due=None)
    if reason != s.reason:
        return but(s, reason=reason, quiet_due=at + QUIET), (), (events.Waiting(reason),)
    if is_due(s.quiet_due, at):
        return but(s, quiet_due=None), (), (events.Waiting(reason, lasts=True),)
    return s, (), ()


def _perhaps_over(now: Step, at: float) -> Step:
    """Where the last round is merged and reported, the broker is left tidy."""
    s, actions, facts = now
    if s.rounds.phase != "finished" or s.unlooked or s.phase != "running":
        return now
    s, confirmed, _ = confirm(s, s.unconfirmed.keys())
    s = but(s, phase="clearing", end_due=at if s.searched else at + SEARCH)
    return s, (*actions, *confirmed, say_state(s, "finished"), vocabulary.ClearModels()), facts


def _ending(s: State, event: vocabulary.Event) -> Step:
    """The run is over: nothing that devices say changes anything, and they read so when they ask the broker."""
    match event:
        case vocabulary.CoordinatorConnected() if s.phase != "ended":
            return s, (vocabulary.Listen(), say_state(s)), (events.Connected(),)
        case vocabulary.CoordinatorDisconnected(reason=reason):
            return s, (), (events.Disconnected(reason),)
        case vocabulary.Searched(at) if s.phase == "clearing":
            return _leave(s, (vocabulary.ClearLeftovers(), say_state(s)), at)
        case vocabulary.Woken(at) if s.phase == "clearing" and is_due(s.end_due, at):
            # The last word twice: no other message says it.
            return _leave(s, (vocabulary.ClearLeftovers(), say_state(s)), at)
        case vocabulary.Woken(at, flushed) if s.phase == "leaving":
            return _leaving(s, at, flushed)
        case _:
            return s, (), ()


def _leave(s: State, actions: tuple[vocabulary.Action, ...], at: float) -> Step:
    s, _, facts = _left_out(s, inf)  # before the last word of the story
    return but(s, phase="leaving", end_due=at + FLUSH, poll_due=at), actions, facts


def _leaving(s: State, at: float, flushed: bool) -> Step:
    if not flushed and not is_due(s.end_due, at):
        return but(s, poll_due=at + POLL), (), ()
    s = but(s, phase="ended", end_due=None, poll_due=None)
    total = s.total + s.since_merge
    return s, (vocabulary.Leave(not s.stopped, total, s.refusals, at - s.began),), ()
