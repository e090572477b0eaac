"""The coordinator's shell: it carries out what `core.step` decides. One event at a time; nothing waits here.

    transport, background, clock ──▶ handle(event) ──▶ core.step ──▶ journal ──▶ actions performed, facts told

An event is taken in when the journal has it, and not before: while the disk is full later ones wait in here, and a
device without a receipt keeps its update. Messages become events in inbound.py; what is large is in artifacts.py.
"""

import logging
from collections import deque
from functools import partial
from typing import Any

from coordinator.decide import core, vocabulary
from coordinator.decide.rounds import Rounds
from coordinator.decide.state import online, recalling, unfinished
from coordinator.durable import checkpoint_writer
from coordinator.durable.group_commit import TOGETHER, CoreStep, happened, only_looks
from coordinator.durable.journal import Journal
from coordinator.durable.starting_point import begin, identify
from coordinator.shell import merging
from coordinator.shell.actions import perform
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.inbound import CoordinatorInbound
from coordinator.shell.inbox import Inbox
from coordinator.shell.invitations import InvitationSender
from coordinator.shell.labels import DeviceLabels
from coordinator.shell.outbox import CoordinatorOutbox, start_number
from coordinator.shell.retained_cleanup import RetainedCleanup
from coordinator.shell.setup import ModelSource, Prepare, Security
from edgefl.base.errors import Interrupted, StoreError
from edgefl.base.events import Fact, Tell
from edgefl.base.records import replace
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState
from edgefl.system.background import Crashed, Work
from edgefl.system.reactor import DeadlineReached
from edgefl.watch.fact_lines import write_log
from edgefl.wire.messages import Renew
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Undelivered
from edgefl.wire.wiring import Wiring

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two attempts to write to a full disk
MEMBERS = 1.0  # seconds between two looks at the list of members
NEVER_DEFERRED = (
    DeadlineReached,
    vocabulary.Stop,
    Crashed,
    checkpoint_writer.Stuck,
)  # taken in though the journal cannot be written


class Coordinator:
    """One run over one transport: a reactor. `prepare` makes the job when the first device is there.

    With a journal, every receipt is written to it before the device gets it. A coordinator that is started again with
    the same journal goes on with the current round.
    """

    def __init__(
        self,
        run: RunFile,
        wiring: Wiring,
        prepare: Prepare,
        *,
        journal: Journal | None = None,
        tell: Tell = lambda _: None,
        security: Security = Security(),
        run_id: str | None = None,
        source: ModelSource = ModelSource(),
    ) -> None:
        transport, clock = wiring.transport, wiring.clock
        self.name, self.transport, self.journal, self.tell = run.run.name, transport, journal, tell
        self.put, self.clock, self.background = wiring.put, clock, wiring.background
        self.run_id = identify(run, self.journal, run_id)
        self.state = begin(run, self.journal, clock.now(), clock.wall())
        self.signer = security.signer or Signer.new()
        fleet, limit, start = run.broker.fleet, run.wire.limit_mb << 20, start_number(self.journal, int(clock.wall()))
        self.outbox = CoordinatorOutbox(transport, fleet, self.name, self.run_id, signer=self.signer, start=start)
        self.inbox = Inbox(self.outbox, run.guards, limit, lambda device: online(self.state, device))
        self.retained_cleanup = RetainedCleanup(transport, fleet, self.name, limit)
        sealed = run.wire.seal is True if security.seal is None else security.seal
        self.artifacts = source.artifacts(run, self.run_id, transport, self.signer, seal=sealed)
        self.preparing = partial(source.preparing, prepare, journal)
        self.invitations = InvitationSender(run, self.artifacts, self.outbox)
        keys = security.device_keys or DeviceKeys(listed=run.devices)
        self.inbound = CoordinatorInbound(self.outbox, self.inbox, keys, self.artifacts, self.retained_cleanup)
        self.pending: deque[vocabulary.Event] = deque()  # not taken in yet: the journal cannot be written
        self.deferred: deque[Any] = deque()  # came meanwhile
        self.undone: list[CoreStep] = []  # steps that wait to be written together
        self.commit_at: float | None = None  # when they do no longer
        self.handed_out: vocabulary.Event | None = None  # what opened a round, for which devices were asked at once
        self.stuck: list[Work] = []  # to be started again
        self.retry_at: float | None = None  # when they are
        self.unwritten: deque[Fact] = deque(maxlen=10_000)  # facts that wait for what must be written down
        self.renewals = security.renewals  # where the fleet has an authority
        self.notices = security.notices
        self.labels = DeviceLabels(run, keys.members)
        self.members_at = clock.now() if keys.members else None  # when to look for revoked devices and other labels
        self.error: Exception | None = None
        self.ended = False

    # ---- the reactor -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._look_at_members(self.clock.now())
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
        hears = self.commit_at, core.deadline(self.state), self.inbox.deadline(), self.members_at
        due = (self.retry_at, *(() if self.pending else hears))
        return min([one for one in due if one is not None], default=None)

    def result(self) -> RunState:
        """The state at the end, or what ended it."""
        if self.error is None and self.artifacts.run_state is not None:
            return self.artifacts.run_state
        raise self.error or interrupted(self.name, self.state.rounds, durable=self.journal is not None)

    def close(self) -> None:
        """Let go of everything, however it ended."""
        if self.ended:
            return
        self.ended = True
        self.background.close()
        self.transport.close()
        self.artifacts.saving.finish()
        try:
            if self.journal:
                self.journal.note(*self.unwritten)
        except StoreError as error:
            log.warning("the last facts are not in the journal why=%s", error)

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _deaf(self, event: Any) -> bool:
        """Whether this has to wait: for the disk, or for what was promised before a restart."""
        if not self.pending and not recalling(self.state):
            return False
        return not isinstance(event, NEVER_DEFERRED) and (bool(self.pending) or isinstance(event, Message))

    def _take(self, event: Any) -> None:  # noqa: PLR0912, C901  one event, one case
        now = self.clock.now()
        match event:
            case Message():
                if heard := self.inbound.event(event, self.state.conduct, now):
                    self.feed(heard)
            case DeadlineReached():
                self._woken(now)
            case ConnectionMade():
                self.feed(vocabulary.CoordinatorConnected(now))
            case ConnectionLost():
                self.feed(vocabulary.CoordinatorDisconnected(now, str(event)))
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case merging.PreparedJob():
                prepared = self.artifacts.prepared(event, now)
                self.inbox.allow(self.artifacts.frame_limit())
                self.feed(prepared)
            case merging.MergeResult(save=save, looks=looks):
                self.feed(self.artifacts.merged(event, now))
                for work in (*([save] if save else []), *looks):
                    self.background.start(work)
            case merging.DeviceModelsEvaluated(reports):
                self.feed(vocabulary.ReportsCompleted(now, reports))
            case vocabulary.CertificateSigned() | vocabulary.Misbehaved() | vocabulary.Handed():
                self.feed(event)
            case checkpoint_writer.Stuck(reason, work):
                self._pause(reason, now, work)
            case checkpoint_writer.Unstuck():
                self.feed(vocabulary.WorkPaused(now, ""))
            case Crashed(error):
                self._end(error, vocabulary.RunFailed(now))
            case vocabulary.Stop() if unfinished(self.state):
                self._end(
                    interrupted(self.name, self.state.rounds, durable=self.journal is not None), vocabulary.Stop(now)
                )

    def _woken(self, now: float) -> None:
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at, works, self.stuck = None, self.stuck, []
            for work in works:
                self.background.start(work)
            self._go_on()
            if not works and not self.pending:  # what is started again says for itself when it is done
                self.feed(vocabulary.WorkPaused(now, ""))
        if not self.pending:
            self.feed(vocabulary.Woken(now, flushed=self.transport.backlog() == 0))
            if self.members_at is not None and now >= self.members_at:
                self.members_at = now + MEMBERS
                self._look_at_members(now)
                for revoked in self.inbound.revoked(now):
                    self.feed(revoked)
                self._notify(now)
            self.inbox.remind(now)

    def _look_at_members(self, now: float) -> None:
        devices, expired = self.inbound.proofs.keys.enrolled()
        if devices != self.state.enrolled or {id for id, _, _ in expired} != self.state.expired:
            self.feed(vocabulary.MembersRead(now, devices, expired))
        if (labels := self.labels.now()) != self.state.labels:
            self.feed(vocabulary.LabelsRead(now, labels))

    def _notify(self, now: float) -> None:
        """Tell devices that are there what their fleet has to tell them."""
        if self.notices is None:
            return
        present = ((id, one.announced.moves) for id, one in self.state.devices.items() if one.online and one.live)
        for device, notice in self.notices.due(present, now, Renew(job=self.name, run_id=self.run_id)):
            self.outbox.say(device, notice)

    def _end(self, error: Exception, event: vocabulary.Event) -> None:
        """Whatever is not written down by now was never promised."""
        self.error = self.error or error
        self.pending.clear()
        try:
            self._write(*self.undone)
            self._carry_out()
        except StoreError:
            self.state, self.undone = self.undone[0].before, []
        self.feed(event)

    # ---- the core ----------------------------------------------------------------------------------------------

    def feed(self, event: vocabulary.Event) -> None:
        """One event into the core, behind those that the journal has not."""
        self.pending.append(event)
        if len(self.pending) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self.pending:
            state, actions, facts = core.step(self.state, self.pending[0])
            if only_looks(actions):  # which promises nothing, and is not worth writing
                self.pending.popleft()
                self.state = state
                perform(self, actions[0])
                continue
            told = tuple([replace(fact, at=self.clock.wall()) for fact in facts])
            answer = self.artifacts.accepted(actions)
            held = (self.undone[-1].held if self.undone else 0) + (len(answer.frame) if answer else 0)
            decided = CoreStep(self.state, state, actions, told, answer, held)
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
            self.undone.append(replace(decided, actions=()) if follows else decided)
            if not waits:
                self._carry_out()

    def _hand_out(self, actions: tuple[vocabulary.Action, ...]) -> None:
        """Ask devices for the round that follows from what is written; once, however often the disk has no room."""
        if self.handed_out is not self.pending[0]:
            self.handed_out = self.pending[0]
            for action in actions:
                perform(self, action)

    def _may_wait(self, decided: CoreStep) -> bool:
        """Whether this can be written together with what comes in a moment."""
        if self.journal is None or not (decided.changes or self.undone) or not decided.may_wait:
            return False
        now = self.clock.now()
        self.commit_at = self.commit_at or now + TOGETHER
        return now < self.commit_at

    def _write(self, *decided: CoreStep) -> None:
        """Before anything comes of it: what the rounds were told, and the answers. Mere facts can wait for that."""
        if self.journal is None:
            return
        entries, story = happened(self.unwritten, decided)
        places = self.journal.write_all(entries) if entries else []
        for entry, place in zip(entries, places, strict=True):
            if entry.answer:
                self.artifacts.answers.written(entry.answer.digest, place)
        self.unwritten = deque(story, self.unwritten.maxlen)

    def _carry_out(self) -> None:
        """Everything that was decided is written."""
        decided, self.undone, self.commit_at = self.undone, [], None
        for one in decided:
            for action in one.actions:
                perform(self, action)
            self.say(*one.facts)

    def _pause(self, reason: str, now: float, *works: Work) -> None:
        """Try again in a moment."""
        self.stuck += works
        self.retry_at = self.retry_at or now + RETRY
        self.state, _, facts = core.step(self.state, vocabulary.WorkPaused(now, reason))
        self.say(*(replace(fact, at=self.clock.wall()) for fact in facts))

    def say(self, *facts: Fact) -> None:
        for fact in facts:
            write_log(log, fact)
            self.tell(fact)


def interrupted(run: str, s: Rounds, *, durable: bool) -> Interrupted:
    """The run was ended before its time."""
    where = "before the first round" if s.phase == "starting" else f"in round {s.round}"
    return Interrupted(f"run '{run}' was interrupted {where}" + "; the same command goes on with it" * durable)
