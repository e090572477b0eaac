"""The agent: a thin shell around the session. One queue, one loop that owns all state, no decisions."""

import logging
import socket
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import TypeAlias

from device_agent import session
from device_agent.backends import MakeModel
from device_agent.ledger import Ledger
from device_agent.library import Library
from device_agent.samples import Samples
from device_agent.session import Action, Session, step
from device_agent.spool import Held, Spools
from device_agent.training import Computed, Failed, Outcome, Progressed, Trained, Trainer
from device_agent.trust import Trust, Wanted
from edgefl import __version__, store
from edgefl.algorithms import shelf
from edgefl.algorithms.base import Budget, Task
from edgefl.config import LIMIT_MB
from edgefl.data.dataset import Dataset
from edgefl.data.labels import of_device
from edgefl.errors import ConfigError, StoreError, WireError, nearest
from edgefl.losses import LOSSES
from edgefl.printable import printable
from edgefl.privacy import Price, keep_spent
from edgefl.protocol import chunks, topics
from edgefl.protocol.codecs import codec
from edgefl.protocol.messages import (
    SMALL,
    TEXT,
    TO_DEVICE,
    Absent,
    Assignment,
    Busy,
    Declined,
    Holding,
    JobState,
    Manifest,
    Missing,
    Presence,
    Receipt,
    Refusal,
    Working,
    frame,
    read,
    read_json,
)
from edgefl.protocol.pace import Pause
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, TransportEvent, Undelivered, Will
from edgefl.vector import State
from edgefl.work import Place, Worker, unpack_broadcast

log = logging.getLogger(__name__)

DISBELIEF = 3  # manifests of a model that are not the coordinator's, before the task is declined
RETRY = 1.0  # seconds between two attempts to write to a full disk
TICK = 1.0  # seconds between two looks at the clock

TaskKey: TypeAlias = tuple[str, int, str, str]  # life of the job, round, model, attempt


class Agent:
    """One device. `run` returns the exit code and the reason."""

    def __init__(
        self,
        *,
        device: str,
        fleet: str,
        transport: Transport,
        data: Dataset | Samples,
        make_model: MakeModel,
        back_end: str,
        folder: Path,
        once: bool = False,
        run: str | None = None,
        connect_timeout: float = 0.0,
        broker: str = "",
        coordinator: str | None = None,
        limit_mb: int = LIMIT_MB,
        allowed: Collection[str] = (),
    ) -> None:
        self.device, self.fleet, self.transport = device, fleet, transport
        self.samples = data if isinstance(data, Samples) else Samples(data)  # the training thread reads them
        self.announced = len(self.samples.data)
        self.make_model, self.back_end, self.folder = make_model, back_end, folder
        self.once, self.run_name = once, run  # end with a run; with this one, and no other
        self.connect_timeout, self.broker = connect_timeout, broker
        self.allowed = frozenset(allowed)  # `package.module:name` of code that a job may name
        self.inbox: SimpleQueue[TransportEvent | Outcome | session.Event] = SimpleQueue()
        self.trainer = Trainer(self.inbox.put)
        self.assembler = chunks.Assembler(SMALL)  # nothing that is said to one device has a body
        self.assignments: dict[TaskKey, Assignment] = {}  # of the tasks that the session knows of
        self.library = Library(transport, fleet, Trust(folder, fleet, coordinator), limit_mb << 20)
        self.refusals: Counter[str] = Counter()
        self.complaints: deque[str] = deque(maxlen=32)  # what somebody has to do something about: said once
        self.spools = Spools(folder, session.MOST_HELD)
        self.held = self.spools.take()  # by the life of the job
        self.offered = {held.digest for held in self.held.values()}  # what may have been sent, whole or in part
        self.states: dict[str, State] = {}
        self.ledger = Ledger(folder)
        self.session = _resumed(self.held)
        self.installation, self.birth = _birth(folder)
        self.published = self.queued = 0  # messages so far; those up to the last chunk of an update
        self.unfinished: deque[str] = deque(maxlen=64)  # lives of jobs that were seen at work
        self.failures: dict[str, str] = {}  # why this device cannot work for a life of a job
        self.pause = Pause(device)
        self.announce_at: float | None = None  # again, after somebody had something against it
        self.looked = monotonic()
        self.stopping = Event()
        self.exit: tuple[int, str] | None = None

    # ---- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> tuple[int, str]:
        """Serve until told to stop."""
        gone = self._presence(online=False)
        self.transport.start(self.inbox.put, Will(topics.presence(self.fleet, self.device), gone))
        give_up = monotonic() + self.connect_timeout if self.connect_timeout else None
        last = Disconnected("no answer")
        while self.exit is None:
            try:
                event = self.inbox.get(timeout=TICK)
            except Empty:
                self._tick()
            else:
                if isinstance(event, Disconnected):
                    last = event
                elif isinstance(event, Connected):
                    give_up = None
                self._handle(event)
                if monotonic() - self.looked > TICK:  # who floods us must not stop the clock
                    self._tick()
            self._announce_when_due()
            if give_up is not None and monotonic() > give_up:
                remedy = last.remedy or "start it, or correct agent.broker"
                self.exit = 2, f"broker {self.broker} is not reachable ({last.reason}): {remedy}"
        self.trainer.close()
        while not self.inbox.empty():
            if isinstance(event := self.inbox.get(), Computed):  # what was computed counts, wanted or not
                self._spend(event.life, event.price)
        self.transport.publish(topics.presence(self.fleet, self.device), gone, retain=True)
        self.transport.flush(2.0)
        self.transport.close()
        return self.exit

    def stop(self) -> None:
        """End cleanly; may be called from a signal handler or another thread."""
        self.stopping.set()
        self.inbox.put(session.Stopped())

    def _handle(self, event: TransportEvent | Outcome | session.Event) -> None:  # noqa: C901, PLR0912  one event, one case
        match event:
            case Message():
                try:
                    self._message(event)
                except WireError as error:
                    self.refusals[error.code] += 1
                    self._complain(f"ignored topic={printable(event.topic)} code={error.code} why={error}")
            case Connected():
                log.info("connected device=%s", self.device)
                mine = topics.down(self.fleet, "+", self.device), topics.presence(self.fleet, self.device)
                self.transport.subscribe(topics.state(self.fleet, "+"), *mine)
                self._feed(session.Connected())
            case Disconnected(taken_over=taken_over):
                log.warning("disconnected device=%s reason=%s", self.device, event)
                self._feed(session.Disconnected())
                if taken_over:
                    self._complain(
                        f"another client took over the connection of '{self.device}', which comes back:"
                        " if this happens again, look for a copy of this device, or for somebody else at the broker"
                    )
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case Computed(life, price):
                self._spend(life, price)
            case Trained() | Failed() | Progressed() if event.number != self.trainer.number:
                log.debug("of a training that was cancelled round=%d", event.round)
            case Trained(_, round, done):
                self._trained(round, done.frame, done.kept)
            case Failed():
                self._failed(event)
            case Progressed(_, round, steps):
                if asked := self._in_hand():
                    self._say(Working(job=asked.job, round=round, steps=steps))
            case _:
                self._feed(event)

    def _feed(self, event: session.Event) -> None:
        self.session, actions = step(self.session, event)
        for action in actions:
            self._perform(action)
        known = {_task_key(task) for task in session.known(self.session)}
        self.assignments = {key: asked for key, asked in self.assignments.items() if key in known}
        asked = self._in_hand()
        self.library.keep(_needs(asked) if asked else ())

    def _in_hand(self) -> Assignment | None:
        """What the coordinator said about the task in hand."""
        task = self.session.task
        return self.assignments.get(_task_key(task)) if task else None

    def _named(self, job: str, round: int) -> str | None:
        """What the coordinator of this life calls its job, if it has asked for this round."""
        return next((asked.job for key, asked in self.assignments.items() if key[:2] == (job, round)), None)

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _message(self, message: Message) -> None:
        match topics.parts(message.topic):
            case (job, "dev", self.device, "down"):
                whole = self.assembler.add(message.payload)
                if whole is not None:
                    self._said(job, *read(TO_DEVICE, whole[1], limit=0)[:1])
            case (_, "model", id, *_, last):
                self._model(id, last, message.payload)
            case ("presence", self.device) if message.payload and not message.retained:
                self._echo(read_json(Presence, message.payload))
            case (job, "state") if message.payload:
                self._state(job, read_json(JobState, message.payload))

    def _said(self, job: str, said: Assignment | Receipt | Refusal | Missing) -> None:
        if isinstance(said, Assignment | Receipt) and said.job != job:
            raise WireError("wire.malformed", f"job '{said.job}' spoke on the topic of job '{job}'")
        match said:
            case Assignment() if said.installation in (None, self.installation):
                log.info("asked job=%s round=%d model=%s", said.job, said.round, said.model)
                self._asked(said)
            case Receipt():
                log.info("receipt round=%d verdict=%s %s", said.round, said.verdict, said.reason)
                self._feed(session.Receipted(said.round, said.digest.hex(), said.verdict))
                self._announce_samples()
            case Refusal() if said.installation in (None, self.installation):
                self._feed(session.Refused(said.code, said.reason))
            case Missing():
                self._feed(session.Resend(said.digest.hex(), said.indexes))
            case _:
                log.debug("not for this installation job=%s", job)

    def _asked(self, said: Assignment) -> None:
        """A task. What the session does not take leaves no trace."""
        task = session.Tasked(_life(said), said.round, _key(said), str(said.attempt), said.overtime, said.counted)
        self.assignments[_task_key(task)] = said
        self.pause.over()  # somebody works with us
        self._feed(task)

    def _state(self, job: str, state: JobState) -> None:
        if state.protocol != topics.PROTOCOL:
            self._complain(
                f"job '{job}' speaks protocol {state.protocol}, this agent {topics.PROTOCOL}, which waits for others:"
                " install the same version of edgefl on both sides"
            )
            return
        self.transport.spread(state.spread)
        self._feed(session.StateSeen(_life(state), state.round, state.phase))
        life = _life(state)
        if state.phase == "finished":
            self._finished(job, life)
            self.library.forget(state.run)
        elif life not in self.unfinished:
            self.unfinished.append(life)

    def _finished(self, job: str, life: str) -> None:
        """With `once` that is the end, if it is our own run and not one from long ago."""
        failure = self.failures.pop(life, None)
        if life in self.unfinished:
            self.unfinished.remove(life)
            log.info("finished job=%s", job)
            if self.once and self.run_name in (None, job):
                self.exit = (2, failure) if failure else (0, f"job '{job}' has finished")

    def _failed(self, failed: Failed) -> None:
        """Not the end of the agent: what is wanted comes from outside, and the next one may want something else."""
        if failed.mistake and self.session.task:
            self.failures = {**dict(list(self.failures.items())[-7:]), self.session.task.job: failed.reason}
            self._complain(failed.reason)
        self._feed(session.TrainingFailed(failed.round, failed.told))

    def _complain(self, what: str) -> None:
        """Say what somebody has to do something about: once, however often it is seen."""
        if what not in self.complaints:
            self.complaints.append(what)
            log.warning("%s", what)

    def _model(self, id: str, last: str, payload: bytes) -> None:
        """A piece of a model. One that is not the coordinator's is asked for again, then declined."""
        try:
            if self.library.take(id, last, payload):
                self._arrived()
        except WireError as error:
            download, asked = self.library.underway.get(id), self._in_hand()
            if last == "manifest" and download and asked and download.wanted in _needs(asked):
                if download.refused < DISBELIEF:  # whoever overwrote it at the broker may not do so twice
                    self._say(Absent(job=asked.job, model=id, forged=True))
                else:
                    self.library.give_up(_needs(asked))
                    self._feed(session.TrainingFailed(asked.round, f"{error.code}: {error}"))
            raise

    def _echo(self, said: Presence) -> None:
        """What stands at the broker under our name must be ours: coordinators that come later read it there."""
        if said.installation == self.installation:
            if (said.birth, said.online) < (self.birth, True):  # the last will of an earlier life came after us
                log.info("announced again birth=%d", self.birth)
                self._perform(session.Announce())
        elif not said.online:
            log.warning("announced again: another device with the id '%s' has left, host=%s", self.device, said.host)
            self._perform(session.Announce())
        else:  # both would go on at once for ever
            self._announce_later(
                f"another device calls itself '{self.device}', host={said.host}: give each device its own agent.id"
            )

    def _announce_later(self, why: str) -> None:
        self._complain(why)
        if self.announce_at is None:
            self.announce_at = monotonic() + self.pause.next()

    def _announce_when_due(self) -> None:
        if self.announce_at is not None and monotonic() > self.announce_at and self.session.online:
            self.announce_at = None
            self._perform(session.Announce())

    def _arrived(self) -> None:
        if (asked := self._in_hand()) and self.library.has(_needs(asked)):
            self._feed(session.ModelArrived(_key(asked)))

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:  # noqa: C901, PLR0912  one action, one line or two
        match action:
            case session.Announce():
                self.announced = len(self.samples.data)
                here = self._presence(online=True)
                self._publish(topics.presence(self.fleet, self.device), here, retain=True)
            case session.AnnounceLater(code, reason):
                self._announce_later(f"refused by a coordinator, tried again later code={code}: {reason}")
            case session.Fetch(_):
                if asked := self._in_hand():
                    self.library.fetch(_needs(asked))
                    self._arrived()
            case session.Train(round, _):
                self._train(round)
            case session.CancelTraining(_):
                self.trainer.cancel()
            case session.Send(_, digest):
                if held := self._held(digest):
                    self._offer(held)
            case session.SendChunks(digest, missing):
                if (held := self._held(digest)) and self.published - self.transport.backlog() >= self.queued:
                    self._send(held, missing)  # else some are still on their way
            case session.Commit(_, digest):
                if held := self._held(digest):
                    self._commit(held)
            case session.Forget(_, digest):
                if held := self._held(digest):
                    del self.held[held.life]
                    self.offered.discard(held.digest)
                    self.spools.clear(held.life)
            case session.Decline(job, round, reason):
                if name := self._named(job, round):
                    self._say(Declined(job=name, round=round, reason=reason[:TEXT]))
            case session.Busy(job, round, reason):
                if name := self._named(job, round):
                    self._say(Busy(job=name, round=round, reason=reason[:TEXT]))
            case session.Note(text):
                log.info("%s", text)
            case session.Quit(reason):
                self.exit = 0, reason

    def _held(self, digest: str) -> Held | None:
        return next((held for held in self.held.values() if held.digest.hex() == digest), None)

    def _train(self, round: int) -> None:
        asked = self._in_hand()
        if asked is None:
            return
        if not self.library.has(_needs(asked)):  # crowded out by what other runs need
            self._feed(session.TrainingFailed(round, "its model is no longer here"))
            return
        item = self.library[asked.model]
        graphs = self.library[asked.graphs].frame if asked.graphs else None
        size, most = item.manifest.layout.layout().size, self.library.limit
        try:
            coded = codec(item.manifest.down, "down", allowed=self.allowed)
            params, extra = unpack_broadcast(item.frame, size, most, coded)
            earlier = self.library[asked.previous].frame if asked.previous else None
            previous = unpack_broadcast(earlier, size, most, coded)[0] if earlier else None
        except ConfigError as error:
            self._feed(session.TrainingFailed(round, str(error)))
            return
        except WireError as error:  # signed, and still no model: the task is over, or nobody else would ever be served
            self._feed(session.TrainingFailed(round, f"{error.code}: {error}"))
            return
        task = Task(round, params, Budget(asked.batches, asked.seconds), extra, previous)
        place, state = Place(asked.run, asked.model), self.kept(_life(asked))
        self.trainer.start(task, place, state, lambda: self._worker(item.manifest, graphs))

    def _worker(self, manifest: Manifest, graphs: bytes | bytearray | None) -> Worker:
        """The device half of the job behind the manifest; refuses what cannot work, by name."""
        data = self.samples.current(lambda data: self._fitted(data, manifest))
        if manifest.loss not in LOSSES:
            raise ConfigError(f"loss '{manifest.loss}' is not known here; {nearest(manifest.loss, LOSSES)}")
        return Worker(
            manifest.job,
            self.device,
            shelf.algorithm(manifest.algorithm, self.allowed),
            self.make_model(manifest, graphs),
            data,
            LOSSES[manifest.loss],
            codec(manifest.codec, "up", allowed=self.allowed),
            manifest.seed,
            manifest.compress,
            secret=True,
        )

    def _fitted(self, data: Dataset, manifest: Manifest) -> Dataset:
        """The samples as this job needs them."""
        if data.shape != manifest.sample:
            raise ConfigError(
                f"device '{self.device}': its samples have shape {list(data.shape)}, the model"
                f" '{manifest.network}' wants {list(manifest.sample)}; correct data.source or the run file's task"
            )
        return of_device(data, manifest.classes, manifest.class_names, f"device '{self.device}'")

    def _announce_samples(self) -> None:
        """Between two tasks: how many samples there are now, if that has changed."""
        if self.announced != len(self.samples.data) and self.session.online:
            self._perform(session.Announce())

    def _trained(self, round: int, data: bytes, kept: State) -> None:
        asked, known_as = self._in_hand(), chunks.digest(data)
        if asked is None:
            return
        held = Held(asked.job, _life(asked), round, str(asked.attempt), _key(asked), data, known_as, kept)
        self.held[held.life] = held
        self.failures.pop(held.life, None)
        try:
            self.spools.put(held)
        except StoreError as error:  # still worth sending: it only does not survive a power cut
            log.warning("the update is held in memory only: %s", error)
        log.info("trained round=%d bytes=%d sha256=%s", round, len(data), known_as.hex()[:16])
        self._feed(session.Trained(round, known_as.hex()))

    def _offer(self, held: Held) -> None:
        """Send the update; if some of it may have been sent before, ask what is missing: no chunk travels twice."""
        if held.digest in self.offered:
            run = held.life.removeprefix(f"{held.job}.")
            size = len(held.frame)
            self._say(Holding(job=held.job, run=run, round=held.round, digest=held.digest, size=size))
        else:
            self.offered.add(held.digest)
            self._send(held, range(chunks.count(len(held.frame))))

    def _send(self, held: Held, indexes: Iterable[int]) -> None:
        for index in dict.fromkeys(indexes):  # each once, however often it is asked for
            if index < chunks.count(len(held.frame)):
                part = chunks.chunk(held.frame, held.digest, index)
                self._publish(topics.up(self.fleet, held.job, self.device), part)
        self.queued = self.published

    # ---- what stays on the device ------------------------------------------------------------------------------

    def kept(self, life: str) -> State:
        """What the algorithm kept in this life of the job; private updates all count, not only those accepted."""
        return keep_spent(self._state_of(life), self.ledger.state(life))

    def _state_of(self, life: str) -> State:
        path = self._state_path(life)
        if life not in self.states:
            try:
                self.states = {life: store.load(path)[0] if path.exists() else {}}
            except StoreError as error:
                log.warning("what was kept between rounds is lost: %s", error)
                self.states = {life: {}}
        return self.states[life]

    def _commit(self, held: Held) -> None:
        """What the algorithm keeps between rounds, of this life of the job only; on disk before it leaves the spool."""
        self.states = {held.life: held.kept}
        if held.kept:
            path = self._state_path(held.life)
            self._insist(lambda: store.save(path, held.kept, {"job": held.life, "device": self.device}))
            for older in set(self.folder.glob(f"{held.job}.*.state")) - {path}:
                older.unlink()

    def _spend(self, life: str, price: Price) -> None:
        """An update that cannot be counted is not sent: it comes after this, in the same queue."""
        self._insist(lambda: self.ledger.spend(life, price))

    def _insist(self, write: Callable[[], None]) -> None:
        """However long the disk stays full; until then the update stays where it is."""
        while True:
            try:
                write()
            except StoreError as error:  # noqa: PERF203 - the loop is there for the error
                log.warning("paused why=%s", error)
                if self.stopping.wait(RETRY):
                    raise
            else:
                return

    def _state_path(self, life: str) -> Path:
        return self.folder / f"{life}.state"

    # ---- small things ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Once a second: a model that does not come is asked for again, and not for ever if other runs wait."""
        self.looked = monotonic()
        if not self.session.online:
            return
        for download in self.library.stalled():
            self._say(Absent(job=download.wanted.job, model=download.id))
        missing, asked = self.library.hopeless(), self._in_hand()
        if missing and asked and self.session.queue:
            self._feed(session.TrainingFailed(asked.round, f"model {missing.id} does not come, and other runs wait"))

    def _say(self, message: Declined | Busy | Working | Absent | Holding) -> None:
        data = frame(message)
        topic = topics.up(self.fleet, message.job, self.device)
        for part in chunks.split(data, chunks.digest(data)):
            self._publish(topic, part)

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.published += 1
        self.transport.publish(topic, payload, retain=retain)

    def _presence(self, *, online: bool) -> bytes:
        here = Presence(
            online=online,
            installation=self.installation,
            birth=self.birth,
            host=socket.gethostname(),
            version=__version__,
            samples=self.announced,
            back_end=self.back_end,
        )
        return here.model_dump_json().encode()


def _resumed(held: Mapping[str, Held]) -> Session:
    """A session that goes on with the updates from before a restart."""
    tasks = {life: session.Tasked(life, one.round, one.model, one.attempt) for life, one in held.items()}
    return Session(held={life: session.Update(tasks[life], one.digest.hex()) for life, one in held.items()})


def _task_key(task: session.Tasked) -> TaskKey:
    return task.job, task.round, task.model, task.attempt


def _life(said: Assignment | JobState) -> str:
    """What the session calls a job: the name may be used again, this never is."""
    return f"{said.job}.{said.run}"


def _needs(asked: Assignment) -> tuple[Wanted, ...]:
    """What must be at hand: the model, the one before it where the algorithm looks back, and the graphs."""
    wanted = (asked.round, asked.model), (asked.round - 1, asked.previous), (0, asked.graphs)
    return tuple(Wanted(asked.job, asked.run, round, id) for round, id in wanted if id)


def _key(asked: Assignment) -> str:
    """The session's word for all of that together, in this life of the job."""
    return "+".join((asked.run, *(one.id for one in _needs(asked))))


def _birth(folder: Path) -> tuple[str, int]:
    """Which installation this is, and how often it has started: an old last will cannot pass for this life."""
    path = folder / "birth"
    words = path.read_text().split() if path.exists() else []
    installation, births = (
        (words[0], int(words[1])) if len(words) == 2 and words[1].isdigit() else (uuid.uuid4().hex, 0)
    )
    store.write_atomically(path, f"{installation} {births + 1}\n".encode())
    return installation, births + 1


def stopper(agent: Agent) -> Callable[[int, object], None]:
    """A signal handler that ends the agent cleanly."""
    return lambda _signal, _frame: agent.stop()
