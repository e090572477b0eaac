"""The coordinator: a thin shell around the round machine. One queue, one loop that owns all state, no decisions."""

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic

from coordinator import checkpoint, identity, late, recall, rounds
from coordinator.budgets import budget
from coordinator.device_keys import NAME as DEVICE_KEYS
from coordinator.device_keys import DeviceKeys
from coordinator.inbox import SILENT, Inbox
from coordinator.journal import Journal, Kept
from coordinator.late import Latecomer
from coordinator.leftovers import Leftovers
from coordinator.merging import Broken, Looked, Merged, Merging, Stuck
from coordinator.publisher import Publisher
from coordinator.roster import Device
from coordinator.rounds import Rounds, Rules, step
from coordinator.voice import Phase, Voice, start_number
from edgefl import events
from edgefl import job as jobs
from edgefl.algorithms.base import Update
from edgefl.config import RunFile
from edgefl.errors import Interrupted, RunError, StoreError, WireError
from edgefl.job import Course, Job
from edgefl.pattern import Pattern, body_limit
from edgefl.pattern import find as find_pattern
from edgefl.protocol import chunks, topics
from edgefl.protocol.frames import Sealed
from edgefl.protocol.messages import (
    INDEXES,
    SMALL,
    TO_COORDINATOR,
    Absent,
    Answer,
    Assignment,
    Busy,
    Declined,
    Holding,
    Missing,
    Working,
    peek,
)
from edgefl.protocol.pace import spread
from edgefl.protocol.signing import Signer
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, TransportEvent, Undelivered
from edgefl.system.disk import FolderDisk
from edgefl.vector import State, norm
from edgefl.work import unpack_answer

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two attempts to write to a full disk
PATIENCE = 30.0  # seconds after a connection in which devices known from before must be heard of
GLANCE = 5.0  # seconds between two looks at the clock, however much comes in
QUIET = 15.0  # seconds after which it is told what is waited for, once for each reason


class Stop:
    """Somebody wants an end."""


def rules(run: RunFile, cohort_rounds: int) -> Rules:
    """The run file's word on rounds, as the machine takes it."""
    return Rules(
        rounds=run.run.rounds,
        seed=run.run.seed,
        cohort=run.cohort,
        quorum=run.quorum,
        deadline=run.rounds.deadline,
        over_select=run.rounds.over_select,
        start_with=run.start_with,
        late=run.rounds.late,
        cohort_rounds=cohort_rounds,
        selection=run.selection,
    )


class Coordinator:
    """One run over one transport. `prepare` makes the job when the first device is there; until then this is light.

    With a folder, everything a device was promised is in the journal before the promise is made, and a coordinator
    that is started again on the same folder goes on with the round in hand. Without a signer it has a key of its own.
    """

    def __init__(
        self,
        run: RunFile,
        transport: Transport,
        prepare: Callable[[], Job],
        *,
        folder: Path | None = None,
        tell: events.Tell = lambda _: None,
        signer: Signer | None = None,
        device_keys: DeviceKeys | None = None,
    ) -> None:
        self.run_file, self.transport, self.prepare, self.folder, self.tell = run, transport, prepare, folder, tell
        self.fleet, self.name = run.broker.fleet, run.run.name
        self.limit = run.wire.limit_mb << 20
        self.queue: SimpleQueue[TransportEvent | Merged | Looked | Stuck | Broken | Stop] = SimpleQueue()
        self.worker = ThreadPoolExecutor(1, "merging")
        self.timer: tuple[float, rounds.SetTimer] | None = None
        self.preparing: Future[Job] | None = None
        self.job: Job | None = None
        self.course: Course | None = None
        self.publisher: Publisher | None = None
        self.pattern: Pattern | None = None
        self.length = 0.0  # of the model: no honest update is a million times as long
        self.extra: tuple[int, State] | None = None
        self.updates: dict[str, Update] = {}
        self.late: dict[str, Latecomer] = {}
        self.unlooked = 0  # rounds whose reports wait for a look at every device's model
        self.paused = ""
        self.looked = monotonic()
        self.stopping = Event()
        self.bytes_up = self.bytes_down = 0
        self.total_up = self.total_down = 0
        self.began = self.since = monotonic()  # of the run; of the round in hand, its waiting for devices included
        self.waited = 0.0  # seconds of that, until it was opened
        self.unheard: tuple[float, set[str]] | None = None
        self.reason, self.untold_since = "", self.began  # why it waits, and since when nobody was told; inf: told

        rounds_rules = rules(run, run.make_algorithm().cohort_rounds)
        self.journal = Journal(FolderDisk(folder)) if folder else None
        restored = self.journal.rounds(rounds_rules) if self.journal else None
        self.resumed = restored is not None
        self.rounds = restored or Rounds(rounds_rules)
        self.known = set(self.journal.devices()) if self.journal else set[str]()  # the fleet, here or not
        self.id = (self.journal.get("life") if self.journal else None) or uuid.uuid4().hex[:12]
        if self.journal and not self.journal.get("life"):
            self.journal.set(life=self.id, run=run.model_dump_json())
        self.signer = signer or (identity.opened(folder / identity.NAME) if folder else Signer.new())
        keys = device_keys or DeviceKeys(folder / DEVICE_KEYS if folder else None, run.devices)
        self.voice = Voice(
            transport, self.fleet, self.name, self.id, signer=self.signer, start=start_number(self.journal)
        )
        self.inbox = Inbox(self.voice, run.guards, self.limit, tell, keys)
        self.leftovers = Leftovers(transport, self.fleet, self.name, self.limit)

    # ---- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> Course:
        """Coordinate until the job is finished."""
        self.transport.start(self.queue.put)
        try:
            while self.rounds.phase != "finished" or self.unlooked:
                self._next()
            job, course, _ = self._job()  # not yet there if the life before this one ended right before its end
        finally:
            self._close()
        totals = {"bytes_up": self.total_up, "bytes_down": self.total_down, "seconds": monotonic() - self.began}
        self.tell(jobs.summary(job, course, **totals, refused=dict(self.inbox.refusals)))
        return course

    def waiting(self) -> str:
        """Why the coordinator waits, if it waits."""
        if self.paused:
            return f"paused: {self.paused}"
        if self.preparing is not None and not self.preparing.done():
            return "preparing the model"
        return rounds.waiting(self.rounds)

    def stop(self) -> None:
        """End early; may be called from a signal handler or another thread."""
        self.stopping.set()
        self.queue.put(Stop())

    def _next(self) -> None:
        try:
            event = self.queue.get(timeout=self._patience())
        except Empty:
            self._tick()
        else:
            self._handle(event)
            if monotonic() - self.looked > GLANCE:  # who floods us must not stop the clock
                self._tick()

    def _handle(self, event: TransportEvent | Merged | Looked | Stuck | Broken | Stop) -> None:
        match event:
            case Message():
                self._message(event)
            case Connected():
                self._connected()
            case Disconnected():
                log.info("disconnected reason=%s", event)  # whoever watches is told, and need not read it twice
                self.tell(events.Disconnected(str(event)))
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case Merged():
                self._merged(event)
            case Looked(reports):
                self.unlooked -= 1
                self._report(reports)
            case Stuck(why):
                self._pause(why)
            case Broken(error):
                raise error
            case Stop():
                raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        where = f"in round {self.rounds.round}" if self.course else "before the first round"
        again = "; the same command goes on with it" if self.folder else ""
        return Interrupted(f"run '{self.name}' was interrupted {where}{again}")

    def _connected(self) -> None:
        log.info("connected job=%s life=%s", self.name, self.id)
        self.voice.listen()
        self.leftovers.search()
        self._say_state()
        if self.publisher:
            self.publisher.again()  # the broker may have lost everything
        if self.rounds.present:
            self.unheard = monotonic() + PATIENCE + spread(len(self.known)), set(self.rounds.present)
        if self.resumed:
            self.resumed = False
            log.warning("resumed run=%s round=%d phase=%s", self.name, self.rounds.round, self.rounds.phase)
            self.tell(events.Resumed(self.rounds.round))
            self._go_on()

    def _go_on(self) -> None:
        """After a restart: what was in hand is taken up again."""
        if self.journal:
            self.journal.note("resumed", round=self.rounds.round)
        if self.rounds.phase == "starting":  # the job is not needed yet
            self._feed(rounds.Resumed(monotonic()))
            return
        job, course, _ = self._job()
        if course.round >= self.rounds.round:  # merged and saved, but not yet written down
            self.updates = {}
            self.late = recall.waiting(self.journal, job, self.rounds) if self.journal else {}
            self._feed(rounds.Merged(course.round, monotonic(), done=jobs.finished(job, course)))
            return
        merging = self.rounds.phase == "merging"
        self._feed(rounds.Resumed(monotonic()))
        if merging and self.journal:
            self.late = recall.waiting(self.journal, job, self.rounds)

    def _close(self) -> None:
        """Leave the broker tidy; an unfinished job says that it will be back."""
        finished = self.rounds.phase == "finished"
        if finished:
            self.leftovers.search()
        self._say_state("finished" if finished else "gathering")
        if self.publisher:
            self.publisher.clear()
        if finished:
            self.leftovers.clear_all(self.queue)
        self.worker.shutdown(wait=True, cancel_futures=True)
        self.transport.flush(5.0)
        self.transport.close()
        if self.journal:
            self.journal.close()

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _message(self, message: Message) -> None:
        match topics.parts(message.topic):
            case ("presence", device) if message.payload:
                hear = self._presence
            case (self.name, "dev", device, "up"):
                hear = self._up
            case _:
                self.leftovers.hear(message)
                return
        try:
            hear(device, message)
        except WireError as error:
            if self.inbox.blame(device, error):
                self._feed(rounds.Lost(device, monotonic()))

    def _presence(self, id: str, message: Message) -> None:
        device = self.inbox.announced(id, message.payload, retained=message.retained)
        if device is None:
            return
        if self.unheard:
            self.unheard[1].discard(id)
        self.tell(events.Joined(id, device.presence.samples) if device.online else events.Lost(id))
        if device.online:
            self._prepare()
        if not device.online:
            self._feed(rounds.Lost(id, monotonic()))
        elif not self.inbox.quarantined(device):
            self.known.add(id)
            self._feed(rounds.Joined(id, monotonic(), device.presence.samples))

    def _up(self, id: str, message: Message) -> None:
        device = self.inbox.known(id)
        whole = self.inbox.gather(device, message.payload)
        if whole is not None:
            self._frame(device, *whole)

    def _frame(self, device: Device, digest: bytes, data: bytes | bytearray) -> None:
        said, sealed = peek(TO_COORDINATOR, data)
        if isinstance(said, Answer):
            self._answer(device, said, sealed, Kept(said.round, device.id, digest, data))
            return
        sealed.body(limit=0)
        self.inbox.heard(device)
        match said:
            case Declined(to=key) if key not in (None, self.signer.key):
                log.debug("declined a task of another coordinator device=%s", device.id)
            case Declined(round=round, reason=reason):
                device.doing = f"declined: {reason}"
                log.info("declined device=%s round=%d why=%s", device.id, round, reason)  # whoever watches is told
                self.tell(events.Declined(device.id, round, reason))
                self._feed(rounds.Declined(device.id, round, monotonic(), reason))
            case Busy(round=round, reason=reason):
                device.doing = f"busy: {reason}"
                log.info("busy device=%s round=%d why=%s", device.id, round, reason)
                self.tell(events.Busy(device.id, round, reason))
                self._feed(rounds.Busy(device.id, round, monotonic(), reason))
            case Working(steps=steps):
                device.doing = f"training, step {steps}"
            case Holding():
                self._held(device, said)
            case Absent(model=model, forged=forged):
                if self.publisher and self.publisher.asked_again(model, monotonic(), whole=not forged):
                    log.warning("published again for=%s model=%s%s", device.id, model, " forged" if forged else "")
            case Missing():
                log.debug("nothing to send again device=%s", device.id)

    def _held(self, device: Device, said: Holding) -> None:
        """A device was interrupted while it sent its answer: tell it what is missing, or that nothing is wanted."""
        if (said.job, said.run) != (self.name, self.id):
            self.voice.receipt(device.id, said.round, said.digest, "refused", "of another run")
            return
        _, actions = step(self.rounds, rounds.Answered(device.id, said.round, monotonic()))
        match actions:
            case (rounds.Ignore(reason=reason), *_):
                self._unwanted(device, said.round, said.digest, reason)
                return
        if said.size > device.assembler.limit:
            limit = device.assembler.limit
            raise WireError("wire.too_large", f"a frame of {said.size} bytes; the limit is {limit}")
        digest, when = device.offered
        if digest == said.digest and monotonic() - when < SILENT:
            return  # it has just been told
        device.offered = said.digest, monotonic()
        gaps = device.assembler.missing(said.digest) or range(chunks.count(said.size))
        self.voice.say(device.id, Missing(digest=said.digest, indexes=tuple(gaps)[:INDEXES]))

    def _unwanted(self, device: Device, round: int, digest: bytes, reason: rounds.Reason) -> None:
        verdict = reason if reason in ("duplicate", "late") else "refused"
        self.voice.receipt(device.id, round, digest, verdict, reason)

    def _answer(self, device: Device, said: Answer, sealed: Sealed, kept: Kept) -> None:
        if (said.device, said.job, said.run) != (device.id, self.name, self.id):
            self.voice.receipt(device.id, said.round, kept.digest, "refused", "of another run")
            raise WireError("update.foreign", f"it is of device '{said.device}', job '{said.job}', run '{said.run}'")
        if self.job is None:
            raise WireError("update.early", "no round has been opened yet")
        match step(self.rounds, rounds.Answered(device.id, said.round, monotonic()))[1]:
            case (rounds.Ignore(reason=reason), *_):  # not opened, not looked at: it costs and teaches nothing
                self.inbox.heard(device)
                log.info("ignored device=%s round=%d why=%s", device.id, said.round, reason)
                self._unwanted(device, said.round, kept.digest, reason)
                return
        try:
            made = self.publisher.published.get(said.round) if self.publisher else None
            if made is not None and said.model != made.id:
                raise WireError("update.model", f"trained from model {said.model}, round {said.round} has {made.id}")
            layout, codec = self.job.model.layout, self.job.up
            update = unpack_answer(said, sealed.body(body_limit(self.pattern, layout, codec)), layout.size, codec)
            if self.pattern:
                self.pattern.check(update.extra)
            self.inbox.guard.check(device.id, update, self.length)
        except WireError as error:
            device.doing = f"refused: {error}"
            self.voice.receipt(device.id, said.round, kept.digest, "refused", str(error))
            self._feed(rounds.Declined(device.id, said.round, monotonic(), str(error)))
            raise
        answered = rounds.Answered(device.id, said.round, monotonic(), said.seconds_per_step or None)
        actions = self._step(answered, kept)
        device.seconds_per_step = said.seconds_per_step or device.seconds_per_step
        self._received(device, said, update, kept, actions)
        self._perform_all(actions)

    def _received(
        self, device: Device, said: Answer, update: Update, kept: Kept, actions: tuple[rounds.Action, ...]
    ) -> None:
        """Take the answer in as the machine decided, and tell the device."""
        size = len(kept.frame)
        match actions:
            case (rounds.Late(), *_):
                self.bytes_up += size
                self.late[device.id] = Latecomer(said.round, update)
                self.voice.receipt(device.id, said.round, kept.digest, "accepted", "late, kept by policy")
            case _:
                self.bytes_up += size
                self.updates[device.id] = update
                device.doing = "answered"
                self.voice.receipt(device.id, said.round, kept.digest, "accepted")
                self.tell(events.Answered(device.id, said.round, size))

    # ---- the machine -------------------------------------------------------------------------------------------

    def _step(self, event: rounds.Event, answer: Kept | None = None) -> tuple[rounds.Action, ...]:
        """One event into the machine; written down before anything comes of it."""
        state, actions = step(self.rounds, event)
        if self.journal and state != self.rounds:
            self._write(self.journal, event, state, answer, actions)
        self.rounds = state
        return actions

    def _write(
        self, book: Journal, event: rounds.Event, state: Rounds, answer: Kept | None, actions: tuple[rounds.Action, ...]
    ) -> None:
        """Until the disk has it, nothing goes on: a device without a receipt keeps its update."""
        closes = state.phase == "merging" and self.rounds.phase != "merging"
        while True:
            try:
                book.write(event, state, answer, len(self.known) if closes else None, actions)
            except StoreError as error:  # noqa: PERF203 - the loop is there for the error
                self._pause(str(error))
                if self.stopping.wait(RETRY):
                    raise self._interrupted() from None
            else:
                self.paused = ""
                return

    def _pause(self, why: str) -> None:
        if not self.paused:
            log.warning("paused why=%s", why)
            self.tell(events.Paused(why))
        self.paused = why

    def _feed(self, event: rounds.Event) -> None:
        self._perform_all(self._step(event))

    def _perform_all(self, actions: tuple[rounds.Action, ...]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: rounds.Action) -> None:
        match action:
            case rounds.Invite(round, devices, attempt):
                self._invite(round, devices, attempt)
            case rounds.SetTimer(seconds=seconds):
                self.timer = monotonic() + seconds, action
            case rounds.Merge(round, devices):
                self.timer = None
                self._merge(round, devices)
            case rounds.Ignore(device, round, reason):
                log.info("ignored device=%s round=%d why=%s", device, round, reason)
            case rounds.Late(device, round):
                log.info("late device=%s round=%d kept by policy", device, round)
            case rounds.Abandon(round, reason):
                log.info("abandoned round=%d why=%s", round, reason)
                self.tell(events.Abandoned(round, reason))
                self.updates.clear()
            case rounds.Finish(completed):
                self.timer = None
                log.info("finished rounds=%d", completed)

    def _invite(self, round: int, devices: tuple[str, ...], attempt: int) -> None:
        job, course, publisher = self._job()
        if self.extra is None or self.extra[0] != round:
            self.length = norm(course.params)
            planned = jobs.plan(job, course)
            if planned is None:
                raise RunError(f"algorithm '{job.algorithm.name}' needs nobody in round {round}, its first")
            self.extra, self.waited = (round, planned), monotonic() - self.since
            self.pattern = self.pattern or find_pattern(job, course, planned)
            self._allow(job)
        previous = None
        if job.algorithm.uses_previous and course.previous is not None:
            previous = publisher.publish(round - 1, course.previous, {})
        made = publisher.publish(round, course.params, self.extra[1])
        self.leftovers.clear(publisher.ids())
        self._say_state("training")
        self.tell(events.Asked(round, attempt, devices, 0))
        log.info("opened round=%d attempt=%d devices=%s", round, attempt, ",".join(devices))
        for id in devices:
            device = self.inbox.devices.get(id)
            if device is None:
                continue  # known from before a restart, and not heard of since: it is asked when it comes back
            device.doing = "asked"
            returned = previous is not None and self.rounds.counted.get(id, 0) != round - 1
            self.bytes_down += len(made.frame) * (2 if returned else 1)
            work = budget(device.seconds_per_step, self.run_file.rounds.deadline)
            asked = Assignment(
                job=self.name,
                run=self.id,
                round=round,
                attempt=attempt,
                model=made.id,
                previous=previous.id if previous else None,
                graphs=publisher.graphs.id if publisher.graphs else None,
                overtime=self.rounds.rules.late != "drop",
                counted=self.rounds.counted.get(id, 0),
                batches=work.batches,
                seconds=work.seconds,
                installation=device.presence.installation,
            )
            self.voice.say(id, asked)

    # ---- merging -----------------------------------------------------------------------------------------------

    def _merge(self, round: int, devices: tuple[str, ...]) -> None:
        job, course, _ = self._job()
        arrived = {id: self.updates[id] for id in devices}
        updates, late_ones = late.fold(self.rounds.rules.late, round, arrived, self.late)
        spent = self.bytes_up, self.bytes_down
        self.total_up, self.total_down = self.total_up + spent[0], self.total_down + spent[1]
        log.info("merging round=%d devices=%d", round, len(updates))
        closed = self.journal.merge(round) if self.journal else None
        population = closed[1] if closed else len(self.known)
        total = self.total_up, self.total_down
        merging = Merging(job, course, updates, late_ones, population, spent, total, self.since, self.waited)
        self.updates, self.late, self.bytes_up, self.bytes_down = {}, {}, 0, 0
        self.unlooked += self.run_file.run.forgetting
        self.worker.submit(merging.work, self.folder, self.stopping, self.queue.put)

    def _merged(self, merged: Merged) -> None:
        self.course, self.paused = merged.course, ""
        self.since, self.waited = monotonic(), 0.0
        self._report(merged.reports)
        for device in self.inbox.devices.values():
            device.doing = "idle" if device.online else "offline"
        done = jobs.finished(self._job()[0], merged.course)
        self._feed(rounds.Merged(merged.course.round, monotonic(), done=done))

    def _report(self, reports: tuple[events.Round, ...]) -> None:
        for report in reports:
            log.info("merged round=%d devices=%d took=%.2fs", report.round, report.devices, report.seconds)
            self.tell(report)

    def _prepare(self) -> Future[Job]:
        """Begin to make the job, unless that is done; it takes some seconds, so it is said."""
        if self.preparing is None:
            self.tell(events.Preparing("preparing the model"))
            self.preparing = self.worker.submit(self.prepare)
        return self.preparing

    def _job(self) -> tuple[Job, Course, Publisher]:
        """The job, which the first round has to wait for; after a restart, as it stood."""
        if self.job is None or self.course is None or self.publisher is None:
            self.job = self._prepare().result()
            self.tell(jobs.opening(self.job))
            saved = checkpoint.latest(FolderDisk(self.folder), self.job) if self.folder else None
            self.course = saved.course if saved else jobs.begin(self.job)
            if saved:
                self.total_up, self.total_down = saved.bytes_up, saved.bytes_down
                for report in saved.reports:
                    self.tell(report)
            if self.journal:
                self.course = recall.catch_up(self.journal, self.job, self.course, self.rounds)
                self.updates, self.late = recall.in_hand(self.journal, self.job, self.rounds)
            self._allow(self.job)
            self.publisher = Publisher(self.transport, self.fleet, self.job, run=self.id, signer=self.signer)
        return self.job, self.course, self.publisher

    def _allow(self, job: Job) -> None:
        """What a frame may weigh follows from the model, and from what the algorithm adds to an answer."""
        self.inbox.allow(min(self.limit, SMALL + body_limit(self.pattern, job.model.layout, job.up)))

    # ---- small things ------------------------------------------------------------------------------------------

    def _patience(self) -> float:
        return 1.0 if self.timer is None else min(1.0, max(0.0, self.timer[0] - monotonic()))

    def _tick(self) -> None:
        """A quiet moment: the timer, devices that fell silent."""
        self.looked = now = monotonic()
        if self.timer is not None and now >= self.timer[0]:
            (_, timer), self.timer = self.timer, None
            self._feed(rounds.Expired(timer.round, timer.attempt, now))
        if self.unheard and now > self.unheard[0]:
            gone, self.unheard = self.unheard[1], None
            for id in sorted(gone):
                log.warning("not heard of since the connection device=%s", id)
                self._feed(rounds.Lost(id, now))
        for id in self.inbox.released(now):
            self._feed(rounds.Joined(id, now, self.inbox.devices[id].presence.samples))
        self.inbox.remind(now)
        self._tell_why(now)

    def _tell_why(self, now: float) -> None:
        """What is waited for, to whoever reads lines: when it has been the same for a while, and once."""
        reason = self.waiting()
        if reason != self.reason:
            self.reason, self.untold_since = reason, now
        elif now - self.untold_since > QUIET:
            self.untold_since = inf
            self.tell(events.Waiting(reason))

    def _say_state(self, phase: Phase | None = None) -> None:
        known: dict[str, Phase] = {"open": "training", "merging": "training", "finished": "finished"}
        self.voice.state(phase or known.get(self.rounds.phase, "gathering"), self.rounds.round, len(self.known))
