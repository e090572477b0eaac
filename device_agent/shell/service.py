"""The agent: a thin shell around the session. It carries out what the session decides, one thing after another.

It is a reactor (edgefl/system/reactor.py): its owner hands it events and wakes it at its deadline. If the disk is
full, the write is tried again at the deadline, and everything later waits behind it. A commit that is not written
keeps its update, and an update whose price is not booked is not sent.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from logging import DEBUG, INFO, WARNING
from typing import TYPE_CHECKING, Any, TypeAlias

from device_agent.decide import session, vocabulary
from device_agent.decide.failure_reason import FailureReason, judged
from device_agent.decide.session import Session, step
from device_agent.durable import identity as key_file
from device_agent.durable.birth_number import born
from device_agent.durable.counted_rows import SUMMED, CountedRows
from device_agent.durable.failures import MOST, Failures
from device_agent.durable.own_models import OwnModels, TrainedOwnModel
from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.durable.replay import Replays
from device_agent.durable.spool import SpooledUpdate, Spools
from device_agent.durable.states import States
from device_agent.durable.trust import RequestedModel, Trust
from device_agent.shell.allowance import KNOWN, UNDONE, Booking
from device_agent.shell.data_watch import DataChecked, DataWatch
from device_agent.shell.descriptions import Describing, Descriptions
from device_agent.shell.inbound import AgentInbound, UntrustedTask
from device_agent.shell.late_renewal import LateRenewal, RenewedLate
from device_agent.shell.model_cache import ModelCache
from device_agent.shell.order import TrainingOrder
from device_agent.shell.outbox import AgentOutbox
from device_agent.shell.presence import Attendance
from device_agent.shell.samples import Samples
from device_agent.shell.setup import DeviceIdentity, Diagnosed, Hooks, Limits, RemoteAnswers, Scope, TrainingSetup
from device_agent.shell.training import Outcome, Trainer, Training, WorkDone, WorkFailed, WorkProgressed
from device_agent.shell.workers import InProcessWorker
from edgefl.base.errors import StoreError, WireError
from edgefl.base.printable import printable
from edgefl.base.vector import State
from edgefl.job.config.allowance import Allowance
from edgefl.job.transforms.sealing import Sealing
from edgefl.system.background import Crashed
from edgefl.system.disk import Disk
from edgefl.system.logs import TOLD, tells
from edgefl.system.reactor import DeadlineReached
from edgefl.wire import chunks, messages, topics
from edgefl.wire.messages import (
    TEXT,
    Absent,
    Assignment,
    BusyMessage,
    DeclinedMessage,
    DeviceRequest,
    Enclosed,
    JobState,
    Missing,
    Receipt,
    Refusal,
    Renewed,
    WireVitals,
    Working,
)
from edgefl.wire.signed import Speaker
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, TransportEvent, Undelivered, Will
from edgefl.wire.wiring import Wiring

if TYPE_CHECKING:
    from device_agent.shell.diagnosis import Diagnosis

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two attempts to write to a full disk
OPEN, QUIET = 60.0, 300.0  # seconds until the broker is asked again what stands there: with work in hand, and without

Event: TypeAlias = TransportEvent | Outcome | DataChecked | Diagnosed | RenewedLate | vocabulary.Stopped


class Agent:
    """One device, from `start` until it has `ended`; `exit` is then its code and the reason."""

    def __init__(
        self,
        identity: DeviceIdentity,
        wiring: Wiring,
        disk: Disk,
        setup: TrainingSetup,
        *,
        scope: Scope = Scope(),
        limits: Limits = Limits(),
        hooks: Hooks = Hooks(),
    ) -> None:
        device, fleet, data = identity.device, identity.fleet, setup.data
        transport, background, clock = wiring.transport, wiring.background, wiring.clock
        self.device, self.fleet, self.transport, self.clock, self.put = device, fleet, transport, clock, wiring.put
        self.severed = False  # whether the bridge from the site that it is at is gone
        self.birth = born(disk, hooks.new_id, clock.wall())
        self.speaker = Speaker(identity.signer or key_file.signer(disk), fleet, self.birth.number)
        self.outbox = AgentOutbox(transport, fleet, device, self.speaker)
        self.samples = data if isinstance(data, Samples) else Samples(data)  # the background reads them
        self.samples.count_on(CountedRows(disk).of)
        if self.samples.change:
            self.samples.sum_over(CountedRows(disk, SUMMED).left_out)
        self.data_watch = DataWatch(device, self.samples, background, clock)
        self.connect_timeout, self.broker, self.addresses = scope.connect_timeout, scope.broker, scope.addresses
        self.allowed = frozenset(limits.allowed)  # `package.module:name` of code that a job may name
        self.trainer: Training = setup.trainer or Trainer(background, clock)
        self.train = setup.train or InProcessWorker(device, self.samples, setup.make_model, self.allowed, setup.work)
        trust = Trust(disk, fleet, scope.coordinator, scope.models)
        self.model_cache = ModelCache(transport, fleet, trust, limits.limit_mb << 20, clock)
        self.inbound = AgentInbound(fleet, device, self.birth.installation, trust, Replays(disk, fleet, clock))
        self.renewal = identity.renewal  # of its certificate, where it has one
        self.late_renewal = LateRenewal(
            identity.renewal,
            self.speaker.signer,
            fleet=fleet,
            addresses=scope.addresses or tuple,
            background=background,
            clock=clock,
        )
        self.refusals: Counter[str] = Counter()
        self.complaints: deque[str] = deque(maxlen=32)  # what an operator has to do something about: logged once
        allowance = limits.allowance or Allowance()
        self.attendance = Attendance(
            identity,
            self.birth,
            self.outbox,
            self.samples,
            clock=clock,
            hooks=hooks,
            complain=lambda what: self._complain(what, what),  # it quotes brokers, coordinators and other devices
            hides=allowance.epsilon is not None,
            moves=scope.addresses.known if scope.addresses else lambda: 0,
        )
        self.heard, self.entropy, self.remote, self.machine = hooks.heard, hooks.entropy, hooks.remote, hooks.machine
        self.diagnosis: Diagnosis | None = None  # from the first question on
        self.spools = Spools(disk, session.MOST_HELD)
        spooled = self.spools.take()
        self.held = {held.digest.hex(): held for held in spooled.values()}
        self.ledger, self.failures = PrivacyLedger(disk), Failures(disk, identity.boot)
        about_data = self.samples, self.allowed
        self.booking = Booking(allowance, self.ledger, self.failures, *about_data)
        self.trains = setup.trainer is None  # others train for a gateway, and book what it costs their data
        self.states = States(disk, device, self.ledger)
        self.misfits = self.samples.misfits  # that were counted as failures
        self.own_models = OwnModels(disk, limits.own_models, limits.own_models_mb << 20)
        self.own_models.tidy(self.held)
        self.order: TrainingOrder | None = None  # that is in training
        self.descriptions = Descriptions(disk)
        updates = {held.run_key: _resumed(held) for held in spooled.values()}
        self.session = Session(held=updates, once=scope.once, only=scope.run)
        self.listened_at = 0.0
        self.events: deque[Event] = deque()  # what came and waits for its turn
        self.actions: deque[vocabulary.Action] = deque()  # what follows from the event in hand, and is not yet done
        self.full: StoreError | None = None  # why nothing goes on
        self.retry_at: float | None = None
        self.give_up_at: float | None = None
        self.last_seen = ConnectionLost("no answer")
        self.exit: tuple[int, str] | None = None

    # ---- the reactor -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect."""
        gone = self.outbox.presence(self.attendance.presence(online=False))
        self.give_up_at = self.clock.now() + self.connect_timeout if self.connect_timeout else None
        self.transport.start(self.put, Will(topics.presence(self.fleet, self.device), gone))

    def handle(self, event: Event | DeadlineReached | Crashed) -> None:
        """Do what follows from one event; nothing after the end."""
        match event:
            case Crashed(error):
                raise error
            case _ if self.ended:
                pass
            case DeadlineReached():
                self._woken()
            case Message(topic=topic) if self.full and topics.parts(topic)[:1] == (topics.SERVER,):
                with suppress(StoreError):  # a certificate that is not written is asked for again
                    self._receive(event)  # a question does not wait for a full disk: it may be about it
            case Diagnosed() if self.full:
                self._receive(event)
            case vocabulary.Stopped() if self.full:
                self._end(1, str(self.full))
            case _:
                self.events.append(event)
                self._go_on()

    def deadline(self) -> float | None:
        """When it wants to be woken: a disk that is full holds up all else but the operator."""
        times = [self.retry_at] if self.full else [self.give_up_at]
        if not self.full:
            times += [self.data_watch.deadline(self.clock.now()), self.late_renewal.deadline()]
        if self.severed and not self.full:
            times.append(self._listens_at())
        if self.session.online and not self.full:
            times += [*self.attendance.deadlines(), self._listens_at(), self.model_cache.deadline()]
        return min((time for time in times if time is not None), default=None)

    @property
    def ended(self) -> bool:
        return self.exit is not None

    def _woken(self) -> None:
        now = self.clock.now()
        if not self.full:
            self.data_watch.woken(now)
            self.late_renewal.woken(now)
        if self.full:
            self._go_on()
        elif self.give_up_at is not None and now >= self.give_up_at:
            remedy = self.last_seen.remedy or "start it, or correct agent.broker"
            self._end(2, f"broker {self.broker} is not reachable ({self.last_seen.reason}): {remedy}")
        elif self.severed:
            if now >= self._listens_at():
                self._listen()
        elif self.session.online:
            self.attendance.woken(now)
            if now >= self._listens_at():
                self._listen()
            for model, silent in self.model_cache.stalled():
                self._feed(vocabulary.ModelOverdue(model, silent))
            self._go_on()

    def _go_on(self) -> None:
        """Whatever is to be done, in order."""
        if self.full and self.retry_at is not None and self.clock.now() < self.retry_at:
            return
        self.full = None
        while not self.full and not self.ended and (self.actions or self.events):
            if self.actions:
                self._attempt(self.actions, self._perform)
            else:
                self._attempt(self.events, self._receive)

    def _attempt(self, queue: deque[Any], do: Callable[[Any], None]) -> None:
        """Do what is first in the queue; if the disk is full it stays there."""
        first = queue.popleft()
        try:
            do(first)
        except StoreError as error:
            log.warning("paused why=%s", error, extra=tells(f"paused why={error.told}"))
            queue.appendleft(first)
            self.full, self.retry_at = error, self.clock.now() + RETRY

    def _feed(self, event: vocabulary.Event) -> None:
        self.session, actions = step(self.session, event)
        self.actions.extendleft(reversed(actions))  # what follows from this comes before what was still to be done
        if self.model_cache.underway:
            self.model_cache.keep(_wanted(self.session.task) if self.session.task else ())

    def _end(self, code: int, reason: str) -> None:
        self.exit = code, reason
        self.trainer.cancel()
        with suppress(StoreError):  # else a task that was cancelled counts as one that failed
            self.failures.end()
        self.outbox.announce(self.attendance.presence(online=False))
        self.inbound.replays.sync()

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _receive(self, event: Event) -> None:  # noqa: C901, PLR0912, PLR0915  one event, one case
        match event:
            case Message():
                try:
                    self._message(event)
                except WireError as error:
                    self.refusals[error.code] += 1
                    ignored = f"ignored topic={printable(event.topic)} code={error.code}"
                    self._complain(f"{ignored} why={error}", ignored)
            case ConnectionMade():
                level = DEBUG if self.attendance.duplicate.certain else INFO
                log.log(level, "connected device=%s", self.device, extra=TOLD)
                self.attendance.connected()
                self.late_renewal.connected()
                self.give_up_at, self.severed = None, False
                self._listen()
                self._feed(vocabulary.AgentConnected())
            case ConnectionLost(taken_over=taken_over):
                level = DEBUG if self.attendance.duplicate.certain else WARNING
                about = self.device, self.broker, event
                log.log(level, "disconnected device=%s broker=%s reason=%s", *about, extra=TOLD)
                self.last_seen, self.severed = event, False
                self.late_renewal.lost(event)
                if self.late_renewal.ended:  # it comes back by itself, when the server renews it
                    self.give_up_at = None
                self._feed(vocabulary.AgentDisconnected())
                if taken_over:
                    taken = (
                        f"another client took over the connection of '{self.device}', which comes back:"
                        " if this happens again, look for a copy of this device, or for a stranger at the broker"
                    )
                    self._complain(taken, taken)
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason, extra=TOLD)
            case WorkDone() | WorkFailed() | WorkProgressed() if event.number != self.trainer.number:
                log.debug("of a training that was cancelled round=%d", event.round)
            case WorkDone(_, round, done):
                if self.booking.hides and self.samples.misfits > self.misfits:
                    self._count_failure()  # that the older data were used is seen in the number of samples
                else:
                    self.failures.end()
                if vitals := self._vitals():  # a machine is never hotter
                    self._working(round, done.steps, vitals)
                self._trained(done.frame, done.kept, done.own)
            case WorkFailed(_, round, reason, told, mistake):
                self.order = None
                if self.booking.hides and told == KNOWN:
                    self.failures.end()
                elif self.booking.hides:
                    self._count_failure()
                    told = UNDONE
                self._failed(round, FailureReason(reason, told, mistake))
                self._announce_data()
            case WorkProgressed(_, round, steps):
                self._working(round, steps, self._vitals())
            case RenewedLate():
                self.late_renewal.answered(event)
            case Diagnosed() if self.diagnosis:
                self.diagnosis.ended(event)
            case DataChecked():
                self.data_watch.looked(event)
                self._announce_data()
            case vocabulary.Stopped():
                self._feed(event)

    def _message(self, message: Message) -> None:
        match topics.parts(message.topic):
            case (job, "dev", self.device, "down"):
                self._hear(job, self.inbound.message, message.payload)
            case (job, "model", "round"):
                self._hear(job, self.inbound.call, message.payload)
            case (_, "model", id, *_, last):
                self._model(id, last, message.payload)
            case ("presence", self.device) if message.payload:
                self.attendance.echo(message)
            case ("site", self.attendance.site) if message.payload in (b"0", b"1"):
                self._bridge(there=message.payload == b"1", retained=message.retained)
            case (job, "state") if message.payload:
                self._state(job, self.inbound.state(job, message.payload))

    def _bridge(self, *, there: bool, retained: bool) -> None:
        """What a cut line is to others, a cut bridge is to us: what was said meanwhile is lost, and said again."""
        if not there and not self.severed:
            log.warning("the site is cut off site=%s", self.attendance.site, extra=TOLD)
            self.severed = True
            self._feed(vocabulary.AgentDisconnected())
        elif there and (self.severed or not retained):
            log.info("the site is there again site=%s", self.attendance.site, extra=TOLD)
            self.severed = False
            self._feed(vocabulary.AgentConnected())

    def _hear(
        self,
        job: str,
        heard: Callable[[str, bytes | memoryview], messages.ToDevice | None],
        payload: bytes | memoryview,
    ) -> None:
        try:
            content = heard(job, payload)
        except UntrustedTask as error:  # another coordinator, the only one that is told
            told = DeclinedMessage(job=job, round=error.task.round, reason=error.told[:TEXT], to=error.key)
            self.outbox.say(error.run_id, told)
            raise
        if content is not None:
            self._said(job, content)

    def _said(self, job: str, message: messages.ToDevice) -> None:
        match message:
            case Assignment() if message.installation in (None, self.birth.installation):
                log.info("asked job=%s round=%d model=%s", message.job, message.round, message.model, extra=TOLD)
                self.attendance.pause.over()  # a coordinator works with us
                task = _tasked(message)
                if message.enclosed:
                    self._unfold(task, message.enclosed)
                self._feed(task)
            case Receipt():
                about = message.round, message.verdict, message.reason
                log.info("receipt round=%d verdict=%s %s", *about, extra=TOLD)
                self._feed(vocabulary.Receipted(message.round, message.digest.hex(), message.verdict))
            case Refusal() if message.installation in (None, self.birth.installation) and message.key in (
                None,
                self.speaker.key,
            ):
                self._feed(vocabulary.RefusalReceived(message.code, message.reason))
            case Renewed() | messages.Renew() | messages.Addresses():
                self._fleet_said(job, message)
            case DeviceRequest() if self.remote:
                self._answers(self.remote).asked(message, self.model_cache.trust.key)
            case Missing():
                self._feed(vocabulary.ResendRequested(message.digest.hex(), message.indexes))
            case _:
                log.debug("not for this installation job=%s", job)

    def _fleet_said(self, job: str, message: Renewed | messages.Renew | messages.Addresses) -> None:
        """Take in what is about the certificate of this device, or about the addresses of its broker."""
        match message:
            case Renewed(certificate=certificate) if self.renewal:
                self.renewal.take(certificate)
            case messages.Renew(run_id=run_id) if self.renewal and self.renewal.possible:
                self.outbox.say(run_id, messages.Renewal(job=job, request=self.renewal.ask_now()))
            case messages.Addresses() if self.addresses is not None and self.inbound.trust.key is not None:
                if self.addresses.learn(message):
                    self.attendance.announce()  # it says which it knows
            case _:
                log.debug("not for this installation job=%s", job)

    def _answers(self, remote: RemoteAnswers) -> "Diagnosis":
        """What answers questions of the fleet's operator."""
        if self.diagnosis is None:
            from device_agent.shell.diagnosis import Diagnosis  # noqa: PLC0415 - most agents are never asked

            about = remote, self.outbox, self.attendance
            self.diagnosis = Diagnosis(*about, clock=self.clock, put=self.put, machine=self.machine)
        return self.diagnosis

    def _unfold(self, task: vocabulary.Tasked, enclosed: Enclosed) -> None:
        """Take in the model that came with the task; one that is not the task's is fetched as any other."""
        try:
            self.model_cache.enclose(_wanted(task)[0], enclosed)
        except WireError as error:
            self.refusals[error.code] += 1
            ignored = f"ignored the model that came with a task code={error.code}"
            self._complain(f"{ignored} why={error}", ignored)

    def _state(self, job: str, state: JobState) -> None:
        if state.protocol != topics.PROTOCOL:
            older = (
                f"job '{job}' speaks protocol {state.protocol}, this agent {topics.PROTOCOL}, which waits for others:"
                " install the same version of edgefl on both sides"
            )
            self._complain(older, older)
            return
        self.heard(state)
        self.transport.spread(state.spread)
        self._feed(vocabulary.StateSeen(state.job, state.run_id, state.round, state.phase))
        if state.phase == "finished":
            self.model_cache.forget(state.run_id)
        elif self.renewal and (request := self.renewal.request()):
            self.outbox.say(state.run_id, messages.Renewal(job=job, request=request))

    def _model(self, id: str, last: str, payload: bytes | memoryview) -> None:
        """A piece of a model."""
        try:
            if self.model_cache.take(id, last, payload):
                self._arrived()
        except WireError as error:
            if last == "manifest" and (download := self.model_cache.underway.get(id)):
                self._feed(vocabulary.ModelDisbelieved(id, download.refused, error.told))
            raise

    def _arrived(self) -> None:
        if (task := self.session.task) and self.model_cache.has(_wanted(task)):
            self._feed(vocabulary.ModelArrived(task))

    def _trained(self, data: bytes | bytearray, kept: State, own: State) -> None:
        task, digest = self.session.task, chunks.digest(data)
        if task is None:
            return
        if own and self.order is not None:
            self._keep_own(self.order, own, digest.hex())  # before the update may be sent: its receipt finds the draft
        self.order = None
        about = task.job, task.run_key, task.round, task.attempt, task.model
        held = SpooledUpdate(*about, data, digest, kept, task.seal, task.purpose)
        try:
            held = self.spools.put(held)
        except StoreError as error:  # still worth sending: it only does not survive a power cut
            log.warning("the update is held in memory only: %s", error)
        self.held[digest.hex()] = held
        done = task.round, len(data), digest.hex()[:16]
        log.info("trained round=%d bytes=%d digest=%s", *done, extra=TOLD)
        self._feed(vocabulary.Trained(task.round, digest.hex()))
        if not kept:
            self.actions.append(
                vocabulary.Sync(task.run_key)
            )  # behind the answer, which need not wait for it: see Spool
        self._announce_data()

    def _failed(self, round: int, verdict: FailureReason) -> None:
        if verdict.mistake:  # a mistake, and not the end: the next run may want something else
            self._complain(verdict.logged, f"declined round={round} why={verdict.told}")
        self._feed(vocabulary.TrainingFailed(round, verdict.told, verdict.reason if verdict.mistake else ""))

    def _count_failure(self) -> None:
        """Write down that a task could not be done, before its coordinator is told."""
        key = self.model_cache.trust.key or ""
        self.failures.end(failed_for=key)
        self.misfits = self.samples.misfits
        count = self.failures.of(key)
        log.warning(
            "a task failed, and each failure reveals something about the data: %d of %d key=%s", count, MOST, key
        )
        if count >= MOST:
            log.warning(
                "this device no longer works for the coordinator with key %s: %d of its tasks could not be done. If"
                " that was no attack, stop the agent, delete %s and start it again",
                key,
                count,
                self.failures.where,
            )

    def _keep_own(self, order: TrainingOrder, arrays: State, digest: str) -> None:
        """Keep the device's own model: as a draft until its update is taken, or at once where nothing was trained."""
        draft = TrainedOwnModel(self.device, order.item.manifest, order.task.round, order.graphs, arrays)
        if order.task.purpose == "train":
            self.own_models.draft(draft, digest)
        else:
            self.own_models.renew(draft)

    def _announce_data(self) -> None:
        if self.attendance.outdated() and self.session.online:
            self.actions.append(vocabulary.Announce())  # behind the answer

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, action: vocabulary.Action) -> None:  # noqa: C901, PLR0912  one action, one line or two
        match action:
            case vocabulary.Announce():
                self.attendance.announce()
            case vocabulary.AnnounceLater(messages.NOT_IN_RUN, reason):
                if reason not in self.complaints:  # nothing is wrong with this device, and nothing to be done
                    self.complaints.append(reason)
                    log.info("%s", reason)
            case vocabulary.AnnounceLater(code, reason):
                self.attendance.announce_later(f"refused by a coordinator, tried again later code={code}: {reason}")
            case vocabulary.Fetch(task):
                if why := self.attendance.unfit():
                    self._feed(vocabulary.Unfit(task.round, why))
                else:
                    self.model_cache.fetch(_wanted(task))
                    self._arrived()
            case vocabulary.AskAgain(task, model, forged):
                self.outbox.say(task.run_id, Absent(job=task.job, model=model, forged=forged))
            case vocabulary.Train(task):
                self._train(task)
            case vocabulary.CancelTraining(_):
                self.order = None
                self.trainer.cancel()
            case vocabulary.Send(_, digest):
                self.outbox.send(self.held[digest])
            case vocabulary.Offer(_, digest):
                self.outbox.offer(self.held[digest])
            case vocabulary.SendChunks(digest, missing):
                if not self.outbox.sending():
                    self.outbox.send(self.held[digest], missing)
            case vocabulary.Sync(run_key):
                self._sync(run_key)
            case vocabulary.Commit(_, digest):
                self.own_models.settle(self.held[digest].run_key, digest)
                self.states.commit(self.held[digest])
            case vocabulary.Forget(_, digest):
                self.own_models.drop(self.held[digest].run_key, digest)
                self.spools.clear(self.held[digest].run_key)
                del self.held[digest]
            case vocabulary.Decline(task, reason):
                self.outbox.say(task.run_id, DeclinedMessage(job=task.job, round=task.round, reason=reason[:TEXT]))
            case vocabulary.ReportBusy(task, reason):
                self.outbox.say(task.run_id, BusyMessage(job=task.job, round=task.round, reason=reason[:TEXT]))
            case vocabulary.LogNote(text):
                log.info("%s", text)
            case vocabulary.Quit(code, reason):
                self._end(code, reason)

    def _sync(self, run_key: str) -> None:
        try:
            self.spools.sync(run_key)
        except StoreError as error:
            log.warning("the update may not survive a power cut: %s", error)

    def _train(self, task: vocabulary.Tasked) -> None:
        if not self.model_cache.has(_wanted(task)):  # crowded out by what other runs need
            self._feed(vocabulary.TrainingFailed(task.round, "its model is no longer here"))
            return
        graphs = self.model_cache[task.graphs].frame if task.graphs else None
        earlier = self.model_cache[task.previous].frame if task.previous else None
        state = self.states.of(task.run_key)
        keeps = self.own_models.most > 0 and (task.purpose == "train" or self.own_models.has(task.run_key))
        order = TrainingOrder(
            task, self.model_cache[task.model], earlier, graphs, state, self.model_cache.limit, keeps=keeps
        )
        self.order = order if keeps else None
        seal = partial(Sealing().device, key=task.seal, entropy=self.entropy) if task.seal else None
        if self.trains:
            try:
                order = self.booking.book(order, self.model_cache.trust.key or "")
            except StoreError:  # the disk is full: tried again
                raise
            except Exception as error:  # noqa: BLE001 - a run may name what cannot be made; nothing was begun
                verdict = judged(error)
                for line in verdict.trace.splitlines():
                    log.warning("  %s", line)
                self.order = None
                self._failed(task.round, verdict)
                return
        train = self.train
        if task.purpose == "describe":
            train = Describing(train, self.descriptions, self.samples, self.device)
        self.trainer.start(order, train, seal)

    # ---- words -------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Ask the broker for what is said to this device, and for what stands there: states, and its own presence.

        Again from time to time: of what a broker has lost on its way nothing else would ever tell.
        """
        mine = topics.down(self.fleet, "+", self.device), topics.presence(self.fleet, self.device)
        bridge = (topics.site(self.fleet, self.attendance.site),) if self.attendance.site else ()
        all_hear = topics.state(self.fleet, "+"), topics.round(self.fleet, "+")
        self.transport.subscribe(*all_hear, *mine, *bridge)
        self.listened_at = self.clock.now()
        self.attendance.expect_echo()

    def _listens_at(self) -> float:
        return self.listened_at + (OPEN if session.known(self.session) else QUIET)

    def _vitals(self) -> WireVitals | None:
        run = self.session.task.run_key if self.session.task else ""
        return self.attendance.vitals(run) if self.session.online else None

    def _working(self, round: int, steps: int, vitals: WireVitals | None) -> None:
        if (task := self.session.task) and not self.booking.hides:
            self.outbox.say(task.run_id, Working(job=task.job, round=round, steps=steps, vitals=vitals))

    def _complain(self, what: str, others: str = "") -> None:
        """Log what an operator has to do something about: once, however often it is seen. `others` are told that."""
        if what not in self.complaints:
            self.complaints.append(what)
            log.warning("%s", what, extra=tells(others))


def _resumed(held: SpooledUpdate) -> session.HeldUpdate:
    """An update from before a restart: some of it may have been sent."""
    about = held.job, held.run_id, held.round, held.model, held.attempt
    task = vocabulary.Tasked(*about, seal=held.seal, purpose=held.purpose)
    return session.HeldUpdate(task, held.digest.hex(), offered=True)


def _tasked(task: Assignment) -> vocabulary.Tasked:
    needs, budget = (task.previous, task.graphs), (task.batches, task.seconds)
    about = task.job, task.run_id, task.round, task.model, str(task.attempt), task.overtime, task.counted
    return vocabulary.Tasked(*about, *needs, *budget, task.seal, task.purpose, task.evaluates, task.held_back)


def _wanted(task: vocabulary.Tasked) -> tuple[RequestedModel, ...]:
    """What must be at hand for it."""
    return tuple(RequestedModel(task.job, task.run_id, round, id) for round, id in task.needs)
