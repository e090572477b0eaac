"""The coordinator's shell: it carries out what `core.step` decides. One event at a time; nothing waits here.

    transport, background, clock ──▶ handle(event) ──▶ core.step ──▶ journal ──▶ actions performed, facts told

An event is taken in when the journal has it, and not before: while the disk is full later ones wait in here, and a
device without a receipt keeps its update. Messages become events in hearing.py; what is large is in artifacts.py.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator import core, merging, saving
from coordinator import vocabulary as words
from coordinator.artifacts import Artifacts
from coordinator.asking import Asking
from coordinator.beginning import begin, identify
from coordinator.decided import Decided
from coordinator.device_keys import DeviceKeys
from coordinator.hearing import Hearing
from coordinator.inbox import Inbox
from coordinator.journal import Happened, Journal
from coordinator.outbox import Outbox, start_number
from coordinator.renewals import Renewals
from coordinator.retained_cleanup import RetainedCleanup
from coordinator.rounds import Rounds
from coordinator.state import online, recalling, unfinished
from coordinator.story import write_log
from edgefl.config.schema import RunFile
from edgefl.errors import Interrupted, StoreError, WireError
from edgefl.events import Fact, Tell
from edgefl.protocol.messages import TEXT, Refusal, Renewed
from edgefl.protocol.sealing import Opener
from edgefl.protocol.signing import Signer
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, Undelivered
from edgefl.run.job import Job, RunState
from edgefl.system.background import Background, Crashed, Put, Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.system.reactor import Woken

log = logging.getLogger(__name__)

TOGETHER = 0.05  # seconds that an answer waits for others to be written with it
RETRY = 1.0  # seconds between two attempts to write to a full disk
MEMBERS = 1.0  # seconds between two looks at the list of members


class Coordinator:
    """One run over one transport: a reactor. `prepare` makes the job when the first device is there.

    With a disk, everything a device was promised is in the journal before the promise is made, and a coordinator
    that is started again on the same disk goes on with the round in hand. Without a signer it has a key of its own.
    `seal` asks devices for sealed answers; unless said, the run file does if it says so itself. A gateway has its own
    `artifacts`, and its own way of `preparing` the job: what it hands out and what is asked for is somebody else's.
    """

    def __init__(
        self,
        run: RunFile,
        transport: Transport,
        prepare: Callable[[], Job],
        *,
        put: Put,
        clock: Clock,
        background: Background,
        disk: Disk | None = None,
        tell: Tell = lambda _: None,
        signer: Signer | None = None,
        device_keys: DeviceKeys | None = None,
        run_id: str | None = None,
        renewals: Renewals | None = None,
        seal: bool | None = None,
        artifacts: Callable[..., Artifacts] = Artifacts,
        preparing: Callable[[Rounds | None, Opener], Work] | None = None,
    ) -> None:
        self.name, self.transport, self.disk = run.run.name, transport, disk
        self.put, self.clock, self.background, self.tell = put, clock, background, tell
        self.journal = Journal(disk, clock=clock) if disk else None
        self.run_id = identify(run, self.journal, run_id)
        self.state = begin(run, self.journal, clock.now())
        self.signer = signer or Signer.new()
        fleet, limit, start = run.broker.fleet, run.wire.limit_mb << 20, start_number(self.journal, int(clock.wall()))
        self.outbox = Outbox(transport, fleet, self.name, self.run_id, signer=self.signer, start=start)
        self.inbox = Inbox(self.outbox, run.guards, limit, lambda device: online(self.state, device))
        self.retained_cleanup = RetainedCleanup(transport, fleet, self.name, limit)
        seal = run.wire.seal is True if seal is None else seal
        self.artifacts = artifacts(run, self.run_id, transport, self.signer, seal=seal)
        self.preparing = preparing or (lambda known, opener: merging.preparing(prepare, disk, known, opener))
        self.asking = Asking(run, self.artifacts, self.outbox)
        keys = device_keys or DeviceKeys(listed=run.devices)
        self.hearing = Hearing(self.outbox, self.inbox, keys, self.artifacts, self.retained_cleanup)
        self.pending: deque[words.Event] = deque()  # not taken in yet: the journal cannot be written
        self.deferred: deque[Any] = deque()  # came meanwhile
        self.undone: list[Decided] = []  # steps that wait to be written together
        self.commit_at: float | None = None  # when they do no longer
        self.handed_out: words.Event | None = None  # what opened a round, for which devices were asked at once
        self.stuck: list[Work] = []  # to be started again
        self.retry_at: float | None = None
        self.unwritten: deque[Fact] = deque(maxlen=10_000)  # facts that wait for what must be written down
        self.renewals = renewals  # where the fleet has an authority
        self.members_at = clock.now() if keys.members else None  # when to look whether somebody was sent away
        self.error: Exception | None = None
        self.ended = False

    # ---- the reactor -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.transport.start(self.put)

    def handle(self, event: Any) -> None:
        """What follows from this event, at once."""
        if self._deaf(event):
            self.deferred.append(event)
            return
        self._take(event)
        while self.deferred and not self._deaf(self.deferred[0]):
            self._take(self.deferred.popleft())

    def deadline(self) -> float | None:
        """When it wants to be woken if nothing happens before."""
        due: tuple[float | None, ...] = (self.retry_at,)
        if not self.pending:
            due = self.retry_at, self.commit_at, core.deadline(self.state), self.inbox.deadline(), self.members_at
        return min((one for one in due if one is not None), default=None)

    def result(self) -> RunState:
        """The state at the end, or what ended it."""
        if self.error is None and self.artifacts.run_state is not None:
            return self.artifacts.run_state
        raise self.error or self._interrupted()

    def close(self) -> None:
        """Let go of everything, however it ended."""
        if self.ended:
            return
        self.ended = True
        self.background.close()
        self.transport.close()
        self.artifacts.saving.work(lambda _: None)  # what the end came too early for; else it is made again
        try:
            if self.journal:
                self.journal.note(*self.unwritten)
        except StoreError as error:
            log.warning("the end of the story is not written why=%s", error)

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _deaf(self, event: Any) -> bool:
        """Whether this has to wait: for the disk, or for what was promised before a restart."""
        if isinstance(event, Woken | words.Stop | Crashed | saving.Stuck):
            return False
        return bool(self.pending) or (recalling(self.state) and isinstance(event, Message))

    def _take(self, event: Any) -> None:  # noqa: PLR0912, C901  one event, one case
        now = self.clock.now()
        match event:
            case Message():
                if heard := self.hearing.event(event, self.state.conduct, now):
                    self._feed(heard)
            case Woken():
                self._woken(now)
            case Connected():
                self._feed(words.Connected(now))
            case Disconnected():
                self._feed(words.Disconnected(now, str(event)))
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case merging.Prepared():
                prepared = self.artifacts.prepared(event, now)
                self.inbox.allow(self.artifacts.frame_limit())
                self._feed(prepared)
            case merging.Merged(save=save, looks=looks):
                self._feed(self.artifacts.merged(event, now))
                for work in (*([save] if save else []), *looks):
                    self.background.start(work)
            case merging.Looked(reports):
                self._feed(words.Looked(now, reports))
            case words.Certified() | words.Misbehaved() | words.Handed():
                self._feed(event)
            case saving.Stuck(reason, work):
                self.stuck.append(work)
                self._pause(reason, now)
            case saving.Unstuck():
                self._feed(words.Paused(now, ""))
            case Crashed(error):
                self._end(error, words.Failed(now))
            case words.Stop() if unfinished(self.state):
                self._end(self._interrupted(), words.Stop(now))

    def _woken(self, now: float) -> None:
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at, works, self.stuck = None, self.stuck, []
            for work in works:
                self.background.start(work)
            self._go_on()
            if not works and not self.pending:  # what is started again says for itself when it is done
                self._feed(words.Paused(now, ""))
        if not self.pending:
            self._feed(words.Woken(now, flushed=self.transport.backlog() == 0))
            if self.members_at is not None and now >= self.members_at:
                self.members_at = now + MEMBERS
                for revoked in self.hearing.revoked(now):
                    self._feed(revoked)
            self.inbox.remind(now)

    def _end(self, error: Exception, event: words.Event) -> None:
        """Whatever is not written down by now was never promised."""
        self.error = self.error or error
        self.pending.clear()
        try:
            self._write(*self.undone)
            self._carry_out()
        except StoreError:
            self.state, self.undone = self.undone[0].before, []
        self._feed(event)

    def _interrupted(self) -> Interrupted:
        rounds = self.state.rounds
        where = "before the first round" if rounds.phase == "starting" else f"in round {rounds.round}"
        again = "; the same command goes on with it" * (self.disk is not None)
        return Interrupted(f"run '{self.name}' was interrupted {where}{again}")

    # ---- the core ----------------------------------------------------------------------------------------------

    def _feed(self, event: words.Event) -> None:
        """One event into the core, behind those that the journal has not."""
        self.pending.append(event)
        if len(self.pending) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self.pending:
            state, actions, facts = core.step(self.state, self.pending[0])
            told = tuple(replace(fact, at=self.clock.wall()) for fact in facts)
            decided = Decided(self.state, state, actions, told, self.artifacts.accepted(actions))
            waits, follows = self._may_wait(decided), decided.follows
            if follows:  # devices need not wait for the disk
                self._hand_out(actions)
            try:
                if not waits:
                    self._write(*self.undone, decided)
            except StoreError as error:
                self._pause(str(error), self.clock.now())
                return
            self.pending.popleft()
            self.state = state
            at_once = tuple(action for action in actions if waits and isinstance(action, words.Open))
            later = tuple(action for action in actions if not follows and action not in at_once)
            self.undone.append(replace(decided, actions=later))
            for action in at_once:  # to look into an answer promises nothing
                self._perform(action)
            if not waits:
                self._carry_out()

    def _hand_out(self, actions: tuple[words.Action, ...]) -> None:
        """Ask devices for the round that follows from what is written; once, however often the disk has no room."""
        if self.handed_out is not self.pending[0]:
            self.handed_out = self.pending[0]
            for action in actions:
                self._perform(action)

    def _may_wait(self, decided: Decided) -> bool:
        """Whether this can be written together with what comes in a moment."""
        now = self.clock.now()
        if self.journal is None or not (decided.changes or self.undone) or not decided.may_wait(self.undone):
            return False
        self.commit_at = self.commit_at or now + TOGETHER
        return now < self.commit_at

    def _write(self, *decided: Decided) -> None:
        """Before anything comes of it: what the rounds were told, and the answers. Mere facts can wait for that."""
        if self.journal is None:
            return
        story, entries = list(self.unwritten), list[Happened]()
        for one in decided:
            story += [fact for fact in one.facts if fact.lasting]
            if one.changes:
                population = one.state.population if one.closes else None
                entries.append(Happened(one.state.fed, one.state.rounds, one.answer, population, tuple(story)))
                story.clear()
        places = self.journal.write_all(entries) if entries else []
        for entry, place in zip(entries, places, strict=True):
            if entry.answer:
                self.artifacts.written(entry.answer, place)
        self.unwritten = deque(story, self.unwritten.maxlen)

    def _carry_out(self) -> None:
        """Everything that was decided is written."""
        decided, self.undone, self.commit_at = self.undone, [], None
        for one in decided:
            for action in one.actions:
                self._perform(action)
            self._say(*one.facts)

    def _pause(self, reason: str, now: float) -> None:
        """Try again in a moment."""
        self.retry_at = self.retry_at or now + RETRY
        self.state, _, facts = core.step(self.state, words.Paused(now, reason))
        self._say(*(replace(fact, at=self.clock.wall()) for fact in facts))

    def _say(self, *facts: Fact) -> None:
        for fact in facts:
            write_log(log, fact)
            self.tell(fact)

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, action: words.Action) -> None:  # noqa: PLR0912, PLR0915, C901  one action, one case
        match action:
            case words.Listen():
                self.outbox.listen()
                self.retained_cleanup.search()
            case words.ListenAgain():
                self.outbox.listen_again()
            case words.SayState(standing, round, fleet):
                self.outbox.state(standing, round, fleet)
            case words.Prepare():
                known = self.state.rounds if self.state.resumed else None
                self.background.start(self.preparing(known, self.artifacts.opener))
            case words.Publish(in_use):
                self.retained_cleanup.clear(self.artifacts.publish(in_use))
            case words.PublishAgain() if self.artifacts.publisher:
                self.artifacts.publisher.again()
            case words.Meet(device):
                self.hearing.meet(device)
            case words.Ask():
                self.asking.ask(action)
            case words.Open(digest=digest):
                self._feed(self.artifacts.look_into(digest, self.clock.now()))
            case words.Accept(digest=digest):
                self.artifacts.keep(digest)
            case words.Late(digest=digest):
                self.artifacts.keep(digest)
                self.outbox.verdict(action)
            case words.Confirm():
                self.outbox.verdict(action)
            case words.Ignore() | words.Refuse():
                self.artifacts.put_away(action.digest)
                self._affordable(action.device, lambda now: self._unwanted(action, now))
            case words.Resend(device, digest, size):
                self._affordable(device, lambda now: self.inbox.ask_for(device, digest, size, now))
            case words.TurnAway(device, code, reason, installation, key):
                self.outbox.say(device, Refusal(code=code, reason=reason[:TEXT], installation=installation, key=key))
            case words.Dismiss(device):
                self.hearing.dismiss(device)
                self.outbox.clear_presence(device)
            case words.Certify(device, request) if self.renewals:
                self.background.start(self.renewals.work(device, request, self.clock.now()))
            case words.HandOver(device, certificate):
                self.outbox.say(device, Renewed(certificate=certificate))
            case words.Merge():
                policy = self.state.rounds.rules.late
                self.background.start(self.artifacts.merge(action, policy, self.disk, self.clock))
            case words.Forget(digests):
                self.artifacts.forget(*digests)
            case words.Tell(facts):
                self._say(*(replace(fact, at=fact.at or self.clock.wall()) for fact in facts))
            case words.ClearModels() if self.artifacts.publisher:
                self.artifacts.publisher.clear()
            case words.ClearLeftovers():
                self.retained_cleanup.clear(())
            case words.Leave(finished):
                over = finished and not self.error
                done = (replace(self.artifacts.summary(action), at=self.clock.wall()),) if over else ()
                self.unwritten.extend(done)
                self.close()
                self._say(*done)

    def _unwanted(self, action: words.Ignore | words.Refuse, now: float) -> None:
        if isinstance(action, words.Ignore):
            self.inbox.count(action.device, now)  # an answer that counts costs the device nothing
        self.outbox.verdict(action)

    def _affordable(self, device: str, reply: Callable[[float], None]) -> None:
        """Reply, unless that is more than the device may ask of us; then it is held against it."""
        now = self.clock.now()
        try:
            reply(now)
        except WireError as error:
            self._feed(self.hearing.misbehaved(device, error, now))
