"""The agent: a thin shell around the session. One queue, one loop that owns all state, no decisions."""

import logging
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic

from device_agent import session
from device_agent.backends import MakeModel
from device_agent.ledger import Ledger
from device_agent.library import Library
from device_agent.session import Action, Session, step
from device_agent.spool import Held, Spool
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
from edgefl.privacy import Price, keep_spent
from edgefl.protocol import chunks, topics
from edgefl.protocol.codecs import codec
from edgefl.protocol.messages import (
    SMALL,
    TO_DEVICE,
    Absent,
    Assignment,
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
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, TransportEvent, Undelivered, Will
from edgefl.vector import State
from edgefl.work import Place, Worker, unpack_broadcast

log = logging.getLogger(__name__)

DISBELIEF = 3  # manifests of a model that are not the coordinator's, before the task is declined
RETRY = 1.0  # seconds between two attempts to write to a full disk


class Agent:
    """One device. `run` returns the exit code and the reason."""

    def __init__(
        self,
        *,
        device: str,
        fleet: str,
        transport: Transport,
        data: Dataset,
        make_model: MakeModel,
        back_end: str,
        folder: Path,
        once: bool = False,
        connect_timeout: float = 0.0,
        broker: str = "",
        coordinator: str | None = None,
        limit_mb: int = LIMIT_MB,
    ) -> None:
        self.device, self.fleet, self.transport, self.data = device, fleet, transport, data
        self.make_model, self.back_end, self.folder, self.once = make_model, back_end, folder, once
        self.connect_timeout, self.broker = connect_timeout, broker
        self.inbox: SimpleQueue[TransportEvent | Outcome | session.Event] = SimpleQueue()
        self.trainer = Trainer(self.inbox.put)
        self.assembler = chunks.Assembler(SMALL)  # nothing that is said to one device has a body
        self.assignment: Assignment | None = None
        self.library = Library(transport, fleet, Trust(folder, fleet, coordinator), limit_mb << 20)
        self.refusals: Counter[str] = Counter()
        self.complaint = ""
        self.spool = Spool(folder)
        self.held = self.spool.take()
        self.offered = self.held.digest if self.held else b""  # what may have been sent, whole or in part
        self.states: dict[str, State] = {}
        self.ledger = Ledger(folder)
        self.session = _resumed(self.held)
        self.installation, self.birth = _birth(folder)
        self.published = self.queued = 0  # messages so far; those up to the last chunk of an update
        self.served = False
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
                event = self.inbox.get(timeout=1.0)
            except Empty:
                self._tick()
            else:
                if isinstance(event, Disconnected):
                    last = event
                elif isinstance(event, Connected):
                    give_up = None
                self._handle(event)
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
                    level = logging.WARNING if self.complaint != str(error) else logging.DEBUG  # the same: said once
                    log.log(level, "ignored topic=%s code=%s why=%s", event.topic, error.code, error)
                    self.complaint = str(error)
            case Connected():
                log.info("connected device=%s", self.device)
                mine = topics.down(self.fleet, "+", self.device), topics.presence(self.fleet, self.device)
                self.transport.subscribe(topics.state(self.fleet, "+"), *mine)
                self._feed(session.Connected())
            case Disconnected(taken_over=taken_over):
                log.warning("disconnected device=%s reason=%s", self.device, event)
                self._feed(session.Disconnected())
                if taken_over:
                    self.exit = 2, f"another client uses the id '{self.device}': give each device its own agent.id"
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case Computed(life, price):
                self._spend(life, price)
            case Trained(round, done):
                self._trained(round, done.frame, done.kept)
            case Failed(round, reason, mistake):
                self._feed(session.TrainingFailed(round, reason))
                if mistake:
                    self.exit = 2, reason
            case Progressed(round, steps):
                if self.assignment:
                    self._say(Working(job=self.assignment.job, round=round, steps=steps))
            case _:
                self._feed(event)

    def _feed(self, event: session.Event) -> None:
        self.session, actions = step(self.session, event)
        for action in actions:
            self._perform(action)

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
            case Assignment():
                self.assignment = said
                log.info("asked job=%s round=%d model=%s", said.job, said.round, said.model)
                self._feed(
                    session.Tasked(_life(said), said.round, _key(said), str(said.attempt), said.overtime, said.counted)
                )
            case Receipt():
                log.info("receipt round=%d verdict=%s %s", said.round, said.verdict, said.reason)
                self._feed(session.Receipted(said.round, said.digest.hex(), said.verdict))
            case Refusal() if said.installation in (None, self.installation):
                self._feed(session.Refused(said.code, said.reason, said.fatal))
            case Missing():
                self._feed(session.Resend(said.digest.hex(), said.indexes))
            case _:
                log.debug("not for this installation job=%s", job)

    def _state(self, job: str, state: JobState) -> None:
        if state.protocol != topics.PROTOCOL:
            self.exit = (
                2,
                (
                    f"job '{job}' speaks protocol {state.protocol}, this agent {topics.PROTOCOL}:"
                    " install the same version of edgefl on both sides"
                ),
            )
            return
        self.transport.spread(state.spread)
        self._feed(session.StateSeen(_life(state), state.round, state.phase))
        if state.phase == "finished" and self.once and self.served:
            self.exit = 0, f"job '{job}' has finished"
        self.served = self.served or state.phase != "finished"

    def _model(self, id: str, last: str, payload: bytes) -> None:
        """A piece of a model. One that is not the coordinator's is asked for again, then declined."""
        try:
            if self.library.take(id, last, payload):
                self._arrived()
        except WireError as error:
            download, asked = self.library.underway.get(id), self.assignment
            if last == "manifest" and download and asked and download.wanted in _needs(asked):
                if download.refused < DISBELIEF:  # whoever overwrote it at the broker may not do so twice
                    self._say(Absent(job=asked.job, model=id, forged=True))
                else:
                    self.library.give_up(_needs(asked))
                    self._feed(session.TrainingFailed(asked.round, f"{error.code}: {error}"))
            raise

    def _echo(self, said: Presence) -> None:
        """The last will of an earlier life came after this one announced itself: the broker must not keep that."""
        if said.installation == self.installation and (said.birth, said.online) < (self.birth, True):
            log.info("announced again birth=%d", self.birth)
            self._perform(session.Announce())

    def _arrived(self) -> None:
        if self.assignment and self.library.has(_needs(self.assignment)):
            self._feed(session.ModelArrived(_key(self.assignment)))

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:  # noqa: C901, PLR0912  one action, one line or two
        match action:
            case session.Announce():
                here = self._presence(online=True)
                self._publish(topics.presence(self.fleet, self.device), here, retain=True)
            case session.Fetch(_):
                if self.assignment:
                    self.library.fetch(_needs(self.assignment))
                    self._arrived()
            case session.Train(round, _):
                self._train(round)
            case session.CancelTraining(_):
                self.trainer.cancel()
            case session.Send():
                self._offer()
            case session.SendChunks(_, missing):
                if self.published - self.transport.backlog() >= self.queued:  # else some are still on their way
                    self._send(missing)
            case session.Commit():
                self._commit()
            case session.Forget():
                self.held = None
                self.spool.clear()
            case session.Decline(round, reason):
                if self.assignment:
                    self._say(Declined(job=self.assignment.job, round=round, reason=reason[:2000]))
            case session.Note(text):
                log.info("%s", text)
            case session.Quit(reason, code):
                self.exit = (0 if code == "stopped" else 2), reason

    def _train(self, round: int) -> None:
        asked = self.assignment
        if asked is None or asked.round != round:
            return
        item = self.library[asked.model]
        graphs = self.library[asked.graphs].frame if asked.graphs else None
        size = item.manifest.layout.layout().size
        params, extra = unpack_broadcast(item.frame, size)
        previous = unpack_broadcast(self.library[asked.previous].frame, size)[0] if asked.previous else None
        task = Task(round, params, Budget(asked.batches, asked.seconds), extra, previous)
        place, state = Place(asked.run, asked.model), self.kept(_life(asked))
        self.trainer.start(task, place, state, lambda: self._worker(item.manifest, graphs))

    def _worker(self, manifest: Manifest, graphs: bytes | bytearray | None) -> Worker:
        """The device half of the job behind the manifest; refuses what cannot work, by name."""
        if self.data.shape != manifest.sample:
            raise ConfigError(
                f"device '{self.device}': its samples have shape {list(self.data.shape)}, the model"
                f" '{manifest.network}' wants {list(manifest.sample)}; correct data.source or the run file's task"
            )
        data = of_device(self.data, manifest.classes, manifest.class_names, f"device '{self.device}'")
        if manifest.loss not in LOSSES:
            raise ConfigError(f"loss '{manifest.loss}' is not known here; {nearest(manifest.loss, LOSSES)}")
        return Worker(
            manifest.job,
            self.device,
            shelf.algorithm(manifest.algorithm),
            self.make_model(manifest, graphs),
            data,
            LOSSES[manifest.loss],
            codec(manifest.codec),
            manifest.seed,
            manifest.compress,
            secret=True,
        )

    def _trained(self, round: int, data: bytes, kept: State) -> None:
        task = self.session.task
        if self.assignment is None or self.session.phase != "training" or task is None or task.round != round:
            return  # it was cancelled when its result was already on the way
        asked, known_as = self.assignment, chunks.digest(data)
        self.held = Held(asked.job, _life(asked), round, str(asked.attempt), _key(asked), data, known_as, kept)
        try:
            self.spool.put(self.held)
        except StoreError as error:  # still worth sending: it only does not survive a power cut
            log.warning("the update is held in memory only: %s", error)
        log.info("trained round=%d bytes=%d sha256=%s", round, len(data), known_as.hex()[:16])
        self._feed(session.Trained(round, known_as.hex()))

    def _offer(self) -> None:
        """Send the update; if some of it may have been sent before, ask what is missing: no chunk travels twice."""
        held = self.held
        if held is None:
            return
        if self.offered == held.digest:
            run = held.life.removeprefix(f"{held.job}.")
            size = len(held.frame)
            self._say(Holding(job=held.job, run=run, round=held.round, digest=held.digest, size=size))
        else:
            self.offered = held.digest
            self._send(range(chunks.count(len(held.frame))))

    def _send(self, indexes: Iterable[int]) -> None:
        held = self.held
        if held is not None:
            for index in indexes:
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

    def _commit(self) -> None:
        """What the algorithm keeps between rounds, of this life of the job only; on disk before it leaves the spool."""
        held = self.held
        if held is None:
            return
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
        """Once a quiet second: a model that does not come is asked for again."""
        if self.session.online:
            for download in self.library.stalled():
                self._say(Absent(job=download.wanted.job, model=download.id))

    def _say(self, message: Declined | Working | Absent | Holding) -> None:
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
            samples=len(self.data),
            back_end=self.back_end,
        )
        return here.model_dump_json().encode()


def _resumed(held: Held | None) -> Session:
    """A session that goes on with an update from before a restart, or begins with nothing in hand."""
    if held is None:
        return Session()
    task = session.Tasked(held.life, held.round, held.model, held.attempt)
    return Session("sending", task, held.digest.hex())


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
