"""The agent: a thin shell around the session. It carries out what the session decides, one thing after another.

It is a reactor (edgefl/system/reactor.py): whoever owns it hands it events and wakes it at its deadline. What the disk
has no room for is tried again at the deadline, and all that comes later waits behind it: a commit that is not written
keeps its update, and an update whose price is not booked is not sent.
"""

import logging
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import partial
from logging import DEBUG, INFO, WARNING
from typing import Any, TypeAlias

from device_agent import identity, session
from device_agent import vocabulary as words
from device_agent.allowance import Affordable, beyond
from device_agent.attendance import Attendance
from device_agent.backends import MakeModel
from device_agent.birth import born
from device_agent.hearing import Hearing, Stranger
from device_agent.model_cache import ModelCache
from device_agent.order import Order, Train
from device_agent.outbox import Outbox
from device_agent.privacy_ledger import PrivacyLedger
from device_agent.renewal import Renewal
from device_agent.replay import Replays
from device_agent.samples import Samples
from device_agent.session import Session, step
from device_agent.spool import Held, Spools
from device_agent.states import States
from device_agent.training import Computed, Failed, Outcome, Progressed, Trained, Trainer, Training
from device_agent.trust import Trust, Wanted
from device_agent.workers import DoWork, InProcess
from edgefl.config.agent_file import LIMIT_MB
from edgefl.config.allowance import Allowance
from edgefl.data.dataset import Dataset
from edgefl.errors import StoreError, WireError
from edgefl.printable import printable
from edgefl.protocol import chunks, messages, topics
from edgefl.protocol.messages import (
    TEXT,
    Absent,
    Assignment,
    Busy,
    Declined,
    Enclosed,
    JobState,
    Missing,
    Receipt,
    Refusal,
    Renewed,
    Vitals,
    Working,
)
from edgefl.protocol.sealing import SYSTEM, Entropy, sealed
from edgefl.protocol.signed import Speaker
from edgefl.protocol.signing import Signer
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, TransportEvent, Undelivered, Will
from edgefl.run.work import Worker
from edgefl.system.background import Background, Crashed
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.system.reactor import Woken
from edgefl.vector import State

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two attempts to write to a full disk
OPEN, QUIET = 60.0, 300.0  # seconds until the broker is asked again what stands there: with work in hand, and without

Event: TypeAlias = TransportEvent | Outcome | words.Stopped


class Agent:
    """One device, from `start` until it has `ended`; `exit` is then its code and the reason."""

    def __init__(
        self,
        *,
        device: str,
        fleet: str,
        site: str = "",
        transport: Transport,
        data: Dataset | Samples,
        make_model: MakeModel,
        back_end: str,
        disk: Disk,
        clock: Clock,
        background: Background,
        put: Callable[[Any], None],
        once: bool = False,
        run: str | None = None,
        connect_timeout: float = 0.0,
        broker: str = "",
        coordinator: str | None = None,
        models: str | None = None,
        limit_mb: int = LIMIT_MB,
        allowed: Collection[str] = (),
        train: Train | None = None,
        trainer: Training | None = None,
        speaks_for: Callable[[], int] = lambda: 1,
        heard: Callable[[JobState], None] = lambda _: None,
        work: DoWork = Worker.work,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        host: str | None = None,
        signer: Signer | None = None,
        renewal: Renewal | None = None,
        entropy: Entropy = SYSTEM,
        machine: Callable[[], Vitals] | None = None,
        unmet: Callable[[Vitals], str] | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.device, self.fleet, self.transport, self.clock, self.put = device, fleet, transport, clock, put
        self.severed = False  # whether the bridge from the site that it is at is gone
        self.birth = born(disk, new_id, clock.wall())
        self.speaker = Speaker(signer or identity.signer(disk), fleet, self.birth.number)
        self.outbox = Outbox(transport, fleet, device, self.speaker)
        self.samples = data if isinstance(data, Samples) else Samples(data)  # the background reads them
        self.connect_timeout, self.broker = connect_timeout, broker
        self.allowed = frozenset(allowed)  # `package.module:name` of code that a job may name
        self.trainer: Training = trainer or Trainer(background, clock)
        self.train = train or InProcess(device, self.samples, make_model, self.allowed, work)
        self.heard = heard  # of every state that counts
        self.entropy = entropy  # for seals
        self.model_cache = ModelCache(transport, fleet, Trust(disk, fleet, coordinator, models), limit_mb << 20, clock)
        self.hearing = Hearing(
            fleet, device, self.birth.installation, self.model_cache.trust, Replays(disk, fleet, clock)
        )
        self.renewal = renewal  # of its certificate, where it has one
        self.refusals: Counter[str] = Counter()
        self.complaints: deque[str] = deque(maxlen=32)  # what somebody has to do something about: said once
        self.attendance = Attendance(
            device=device,
            fleet=fleet,
            site=site,
            birth=self.birth,
            key=self.speaker.key,
            outbox=self.outbox,
            samples=self.samples,
            clock=clock,
            complain=self._complain,
            back_end=back_end,
            host=host,
            speaks_for=speaks_for,
            machine=machine,
            unmet=unmet,
        )
        self.spools = Spools(disk, session.MOST_HELD)
        spooled = self.spools.take()
        self.held = {held.digest.hex(): held for held in spooled.values()}
        self.ledger, self.allowance = PrivacyLedger(disk), allowance or Allowance()
        if self.allowance.epsilon is not None:
            self.train = Affordable(self.train, self.allowance, self.ledger, self.samples, self.allowed)
        self.states = States(disk, device, self.ledger)
        updates = {held.run_key: _resumed(held) for held in spooled.values()}
        self.session = Session(held=updates, once=once, only=run)
        self.listened_at = 0.0
        self.events: deque[Event] = deque()  # what came and waits for its turn
        self.actions: deque[words.Action] = deque()  # what follows from the event in hand, and is not yet done
        self.full: StoreError | None = None  # why nothing goes on
        self.retry_at: float | None = None
        self.give_up_at: float | None = None
        self.last_seen = Disconnected("no answer")
        self.exit: tuple[int, str] | None = None

    # ---- the reactor -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect."""
        gone = self.outbox.presence(self.attendance.presence(online=False))
        self.give_up_at = self.clock.now() + self.connect_timeout if self.connect_timeout else None
        self.transport.start(self.put, Will(topics.presence(self.fleet, self.device), gone))

    def handle(self, event: Event | Woken | Crashed) -> None:
        """What follows from one event. After the end only what was computed still counts, wanted or not."""
        match event:
            case Crashed(error):
                raise error
            case Computed(run, price) if self.ended:
                self.ledger.spend(run, price)
            case _ if self.ended:
                pass
            case Woken():
                self._woken()
            case words.Stopped() if self.full:
                self._end(1, str(self.full))
            case _:
                self.events.append(event)
                self._go_on()

    def deadline(self) -> float | None:
        """When it wants to be woken: a disk that is full holds up all else but the operator."""
        times = [self.retry_at] if self.full else [self.give_up_at]
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
                self._feed(words.ModelOverdue(model, silent))
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
            log.warning("paused why=%s", error)
            queue.appendleft(first)
            self.full, self.retry_at = error, self.clock.now() + RETRY

    def _feed(self, event: words.Event) -> None:
        self.session, actions = step(self.session, event)
        self.actions.extendleft(reversed(actions))  # what follows from this comes before what was still to be done
        if self.model_cache.underway:
            self.model_cache.keep(_wanted(self.session.task) if self.session.task else ())

    def _end(self, code: int, reason: str) -> None:
        self.exit = code, reason
        self.trainer.cancel()
        self.outbox.announce(self.attendance.presence(online=False))
        self.hearing.replays.sync()

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _receive(self, event: Event) -> None:  # noqa: C901, PLR0912  one event, one case
        match event:
            case Message():
                try:
                    self._message(event)
                except WireError as error:
                    self.refusals[error.code] += 1
                    self._complain(f"ignored topic={printable(event.topic)} code={error.code} why={error}")
            case Connected():
                log.log(DEBUG if self.attendance.twin.certain else INFO, "connected device=%s", self.device)
                self.attendance.connected()
                self.give_up_at, self.severed = None, False
                self._listen()
                self._feed(words.Connected())
            case Disconnected(taken_over=taken_over):
                level = DEBUG if self.attendance.twin.certain else WARNING
                log.log(level, "disconnected device=%s broker=%s reason=%s", self.device, self.broker, event)
                self.last_seen, self.severed = event, False
                self._feed(words.Disconnected())
                if taken_over:
                    self._complain(
                        f"another client took over the connection of '{self.device}', which comes back:"
                        " if this happens again, look for a copy of this device, or for somebody else at the broker"
                    )
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case Computed(run, price):
                self.ledger.spend(run, price)
            case Trained() | Failed() | Progressed() if event.number != self.trainer.number:
                log.debug("of a training that was cancelled round=%d", event.round)
            case Trained(_, round, done):
                if vitals := self._vitals():  # a machine is never hotter
                    self._working(round, done.steps, vitals)
                if why := beyond(self.allowance, self.ledger.runs.values()):  # one that was cancelled was paid for too
                    self._feed(words.TrainingFailed(round, f"privacy.spent: {why}"))
                else:
                    self._trained(done.frame, done.kept)
            case Failed(_, round, reason, told, mistake):
                if mistake:  # somebody's, and not the end: the next run may want something else
                    self._complain(reason)
                self._feed(words.TrainingFailed(round, told, reason if mistake else ""))
            case Progressed(_, round, steps):
                self._working(round, steps, self._vitals())
            case words.Stopped():
                self._feed(event)

    def _message(self, message: Message) -> None:
        match topics.parts(message.topic):
            case (job, "dev", self.device, "down"):
                self._hear(job, self.hearing.message, message.payload)
            case (job, "model", "round"):
                self._hear(job, self.hearing.call, message.payload)
            case (_, "model", id, *_, last):
                self._model(id, last, message.payload)
            case ("presence", self.device) if message.payload:
                self.attendance.echo(message)
            case ("site", self.attendance.site) if message.payload in (b"0", b"1"):
                self._bridge(there=message.payload == b"1", retained=message.retained)
            case (job, "state") if message.payload:
                self._state(job, self.hearing.state(job, message.payload))

    def _bridge(self, *, there: bool, retained: bool) -> None:
        """What a cut line is to others, a cut bridge is to us: what was said meanwhile is lost, and said again."""
        if not there and not self.severed:
            log.warning("the site is cut off site=%s", self.attendance.site)
            self.severed = True
            self._feed(words.Disconnected())
        elif there and (self.severed or not retained):
            log.info("the site is there again site=%s", self.attendance.site)
            self.severed = False
            self._feed(words.Connected())

    def _hear(
        self,
        job: str,
        heard: Callable[[str, bytes | memoryview], messages.ToDevice | None],
        payload: bytes | memoryview,
    ) -> None:
        try:
            content = heard(job, payload)
        except Stranger as error:  # another coordinator, who is told and nobody else
            told = Declined(job=job, round=error.task.round, reason=error.told[:TEXT], to=error.key)
            self.outbox.say(error.run_id, told)
            raise
        if content is not None:
            self._said(job, content)

    def _said(self, job: str, message: messages.ToDevice) -> None:
        match message:
            case Assignment() if message.installation in (None, self.birth.installation):
                log.info("asked job=%s round=%d model=%s", message.job, message.round, message.model)
                self.attendance.pause.over()  # somebody works with us
                task = _tasked(message)
                if message.enclosed:
                    self._unfold(task, message.enclosed)
                self._feed(task)
            case Receipt():
                log.info("receipt round=%d verdict=%s %s", message.round, message.verdict, message.reason)
                self._feed(words.Receipted(message.round, message.digest.hex(), message.verdict))
            case Refusal() if message.installation in (None, self.birth.installation) and message.key in (
                None,
                self.speaker.key,
            ):
                self._feed(words.Refused(message.code, message.reason))
            case Renewed(certificate=certificate) if self.renewal:
                self.renewal.take(certificate)
            case Missing():
                self._feed(words.Resend(message.digest.hex(), message.indexes))
            case _:
                log.debug("not for this installation job=%s", job)

    def _unfold(self, task: words.Tasked, enclosed: Enclosed) -> None:
        """Take in the model that came with the task; one that is not the task's is fetched as any other."""
        try:
            self.model_cache.enclose(_wanted(task)[0], enclosed)
        except WireError as error:
            self.refusals[error.code] += 1
            self._complain(f"ignored the model that came with a task code={error.code} why={error}")

    def _state(self, job: str, state: JobState) -> None:
        if state.protocol != topics.PROTOCOL:
            self._complain(
                f"job '{job}' speaks protocol {state.protocol}, this agent {topics.PROTOCOL}, which waits for others:"
                " install the same version of edgefl on both sides"
            )
            return
        self.heard(state)
        self.transport.spread(state.spread)
        self._feed(words.StateSeen(state.job, state.run_id, state.round, state.phase))
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
                self._feed(words.ModelDisbelieved(id, download.refused, f"{error.code}: {error}"))
            raise

    def _arrived(self) -> None:
        if (task := self.session.task) and self.model_cache.has(_wanted(task)):
            self._feed(words.ModelArrived(task))

    def _trained(self, data: bytes | bytearray, kept: State) -> None:
        task, digest = self.session.task, chunks.digest(data)
        if task is None:
            return
        about = task.job, task.run_key, task.round, task.attempt, task.model
        held = Held(*about, data, digest, kept, task.seal, task.purpose)
        try:
            held = self.spools.put(held)
        except StoreError as error:  # still worth sending: it only does not survive a power cut
            log.warning("the update is held in memory only: %s", error)
        self.held[digest.hex()] = held
        log.info("trained round=%d bytes=%d digest=%s", task.round, len(data), digest.hex()[:16])
        self._feed(words.Trained(task.round, digest.hex()))
        if not kept:
            self.actions.append(words.Sync(task.run_key))  # behind the answer, which need not wait for it: see Spool
        if self.attendance.announced != len(self.samples.data) and self.session.online:
            self.actions.append(words.Announce())  # behind the answer

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, action: words.Action) -> None:  # noqa: C901, PLR0912  one action, one line or two
        match action:
            case words.Announce():
                self.attendance.announce()
            case words.AnnounceLater(code, reason):
                self.attendance.announce_later(f"refused by a coordinator, tried again later code={code}: {reason}")
            case words.Fetch(task):
                if why := self.attendance.unfit():
                    self._feed(words.Unfit(task.round, why))
                else:
                    self.model_cache.fetch(_wanted(task))
                    self._arrived()
            case words.AskAgain(task, model, forged):
                self.outbox.say(task.run_id, Absent(job=task.job, model=model, forged=forged))
            case words.Train(task):
                self._train(task)
            case words.CancelTraining(_):
                self.trainer.cancel()
            case words.Send(_, digest):
                self.outbox.send(self.held[digest])
            case words.Offer(_, digest):
                self.outbox.offer(self.held[digest])
            case words.SendChunks(digest, missing):
                if not self.outbox.sending():
                    self.outbox.send(self.held[digest], missing)
            case words.Sync(run_key):
                self._sync(run_key)
            case words.Commit(_, digest):
                self.states.commit(self.held[digest])
            case words.Forget(_, digest):
                self.spools.clear(self.held[digest].run_key)
                del self.held[digest]
            case words.Decline(task, reason):
                self.outbox.say(task.run_id, Declined(job=task.job, round=task.round, reason=reason[:TEXT]))
            case words.Busy(task, reason):
                self.outbox.say(task.run_id, Busy(job=task.job, round=task.round, reason=reason[:TEXT]))
            case words.Note(text):
                log.info("%s", text)
            case words.Quit(code, reason):
                self._end(code, reason)

    def _sync(self, run_key: str) -> None:
        try:
            self.spools.sync(run_key)
        except StoreError as error:
            log.warning("the update may not survive a power cut: %s", error)

    def _train(self, task: words.Tasked) -> None:
        if not self.model_cache.has(_wanted(task)):  # crowded out by what other runs need
            self._feed(words.TrainingFailed(task.round, "its model is no longer here"))
            return
        graphs = self.model_cache[task.graphs].frame if task.graphs else None
        earlier = self.model_cache[task.previous].frame if task.previous else None
        state = self.states.of(task.run_key)
        order = Order(task, self.model_cache[task.model], earlier, graphs, state, self.model_cache.limit)
        seal = partial(sealed, to=task.seal, entropy=self.entropy) if task.seal else None
        self.trainer.start(order, self.train, seal)

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

    def _vitals(self) -> Vitals | None:
        run = self.session.task.run_key if self.session.task else ""
        return self.attendance.vitals(run) if self.session.online else None

    def _working(self, round: int, steps: int, vitals: Vitals | None) -> None:
        if task := self.session.task:
            self.outbox.say(task.run_id, Working(job=task.job, round=round, steps=steps, vitals=vitals))

    def _complain(self, what: str) -> None:
        """Say what somebody has to do something about: once, however often it is seen."""
        if what not in self.complaints:
            self.complaints.append(what)
            log.warning("%s", what)


def _resumed(held: Held) -> session.Update:
    """An update from before a restart: some of it may have been sent."""
    about = held.job, held.run_id, held.round, held.model, held.attempt
    task = words.Tasked(*about, seal=held.seal, purpose=held.purpose)
    return session.Update(task, held.digest.hex(), offered=True)


def _tasked(task: Assignment) -> words.Tasked:
    needs, budget = (task.previous, task.graphs), (task.batches, task.seconds)
    about = task.job, task.run_id, task.round, task.model, str(task.attempt), task.overtime, task.counted
    return words.Tasked(*about, *needs, *budget, task.seal, task.purpose, task.evaluates, task.held_back)


def _wanted(task: words.Tasked) -> tuple[Wanted, ...]:
    """What must be at hand for it."""
    return tuple(Wanted(task.job, task.run_id, round, id) for round, id in task.needs)
