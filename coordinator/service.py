"""The coordinator: a thin shell around the round machine. One queue, one loop that owns all state, no decisions."""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from coordinator import checkpoint, rounds
from coordinator.budgets import budget
from coordinator.publisher import Publisher
from coordinator.roster import Device, Roster
from coordinator.rounds import Rounds, Rules, step
from edgefl import job as jobs
from edgefl.algorithms.base import Update
from edgefl.config import RunFile
from edgefl.errors import RunError, WireError
from edgefl.job import Course, Job
from edgefl.protocol import chunks, topics
from edgefl.protocol.messages import (
    TO_COORDINATOR,
    Absent,
    Answer,
    Assignment,
    Declined,
    JobState,
    Missing,
    Presence,
    Receipt,
    Refusal,
    Working,
    frame,
    read,
    read_json,
)
from edgefl.protocol.transport import Connected, Disconnected, Message, Transport, TransportEvent, Undelivered
from edgefl.vector import State
from edgefl.work import unpack_answer

log = logging.getLogger(__name__)

SILENT = 2.0  # seconds without a chunk before a device is asked for those that are missing

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Merged:
    """The worker thread has made the next model; rounds that need nobody are already behind it."""

    course: Course
    reports: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The worker thread could not."""

    error: BaseException


@dataclass(frozen=True, slots=True)
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
    )


class Coordinator:
    """One run over one transport. `prepare` makes the job when the first device is there; until then this is light."""

    def __init__(
        self,
        run: RunFile,
        transport: Transport,
        prepare: Callable[[], Job],
        *,
        folder: Path | None = None,
        tell: Tell = lambda _: None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]  # this life of the job
        self.run_file, self.transport, self.prepare, self.folder, self.tell = run, transport, prepare, folder, tell
        self.fleet, self.name = run.broker.fleet, run.run.name
        self.limit = run.wire.limit_mb << 20
        self.rounds = Rounds(rules(run, run.make_algorithm().cohort_rounds))
        self.roster = Roster(self.limit)
        self.inbox: SimpleQueue[TransportEvent | Merged | Broken | Stop] = SimpleQueue()
        self.worker = ThreadPoolExecutor(1, "merging")
        self.timer: tuple[float, rounds.SetTimer] | None = None
        self.preparing: Future[Job] | None = None
        self.job: Job | None = None
        self.course: Course | None = None
        self.publisher: Publisher | None = None
        self.extra: tuple[int, State] | None = None
        self.updates: dict[str, Update] = {}
        self.late: dict[str, Update] = {}
        self.refusals: Counter[str] = Counter()
        self.bytes_up = self.bytes_down = 0
        self.total_up = self.total_down = 0
        self.opened = self.began = monotonic()
        self.stopped = False

    # ---- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> Course:
        """Coordinate until the job is finished."""
        self.transport.start(self.inbox.put)
        try:
            while self.rounds.phase != "finished":
                self._next()
        finally:
            self._say_state("finished")
            if self.publisher:
                self.publisher.clear()
            self.worker.shutdown(wait=True, cancel_futures=True)
            self.transport.flush(5.0)
            self.transport.close()
        if self.job is None or self.course is None:
            raise RunError("the run ended before its first round")
        self.tell(
            jobs.summary(
                self.job,
                self.course,
                bytes_up=self.total_up,
                bytes_down=self.total_down,
                seconds=monotonic() - self.began,
                refused=dict(self.refusals),
            )
        )
        return self.course

    def _next(self) -> None:
        try:
            event = self.inbox.get(timeout=self._patience())
        except Empty:
            self._tick()
        else:
            self._handle(event)

    def waiting(self) -> str:
        """Why the coordinator waits, if it waits."""
        if self.preparing is not None and not self.preparing.done():
            return "preparing the model"
        return rounds.waiting(self.rounds)

    def stop(self) -> None:
        """End early; may be called from a signal handler or another thread."""
        self.inbox.put(Stop())

    def _handle(self, event: TransportEvent | Merged | Broken | Stop) -> None:
        match event:
            case Message():
                self._message(event)
            case Connected():
                log.info("connected job=%s", self.name)
                self.transport.subscribe(topics.presence(self.fleet, "+"), topics.up(self.fleet, self.name, "+"))
                self._say_state()
                if self.publisher:
                    self.publisher.again()  # the broker may have lost everything
            case Disconnected(reason):
                log.warning("disconnected reason=%s", reason)
                self.tell({"event": "disconnected", "reason": reason})
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case Merged(course, reports):
                self._merged(course, reports)
            case Broken(error):
                raise error
            case Stop():
                self.stopped = True
                raise KeyboardInterrupt

    def _feed(self, event: rounds.Event) -> tuple[rounds.Action, ...]:
        self.rounds, actions = step(self.rounds, event)
        for action in actions:
            self._perform(action)
        return actions

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _message(self, message: Message) -> None:
        match topics.parts(message.topic):
            case ("presence", device) if message.payload:
                with self._blaming(device):
                    self._presence(device, message)
            case (self.name, "dev", device, "up"):
                with self._blaming(device):
                    self._up(device, message.payload)

    def _presence(self, id: str, message: Message) -> None:
        presence = read_json(Presence, message.payload)
        if presence.protocol != topics.PROTOCOL:
            self._refuse(
                id,
                presence,
                "protocol.version",
                f"device '{id}' speaks protocol {presence.protocol}, the coordinator {topics.PROTOCOL}:"
                " install the same version of edgefl on both sides",
            )
            return
        refused = self.roster.claim(id, presence, retained=message.retained)
        if refused == "stale":
            return
        if refused:
            self._refuse(id, presence, "device.duplicate", refused)
            return
        if self.preparing is None and presence.online:
            self.preparing = self.worker.submit(self.prepare)
        device = self.roster.devices[id]
        device.doing = "idle" if presence.online else "offline"
        self.tell({"event": "joined" if presence.online else "lost", "device": id})
        self._feed(rounds.Joined(id, monotonic()) if presence.online else rounds.Lost(id, monotonic()))

    def _up(self, id: str, payload: bytes) -> None:
        device = self.roster.devices.get(id)
        if device is None:
            raise WireError("device.unknown", f"device '{id}' has not announced itself")
        device.live, device.touched = True, monotonic()
        device.bytes_up += len(payload)
        whole = device.assembler.add(payload)
        if whole is None:
            device.doing = f"sending {device.assembler.share() or 0:.0%}"
            return
        digest, data = whole
        said, opened = read(TO_COORDINATOR, data, self.limit)
        match said:
            case Answer():
                self._answer(device, said, opened.body, digest, len(data))
            case Declined(round=round, reason=reason):
                device.doing = f"declined: {reason}"
                log.warning("declined device=%s round=%d why=%s", id, round, reason)
                self.tell({"event": "declined", "device": id, "round": round, "reason": reason})
                self._feed(rounds.Declined(id, round, monotonic()))
            case Working(steps=steps):
                device.doing = f"training, step {steps}"
            case Absent(model=model):
                log.warning("published again for=%s model=%s", id, model)
                if self.publisher:
                    self.publisher.again(model)
            case Missing():
                log.debug("nothing to send again device=%s", id)

    def _answer(self, device: Device, said: Answer, body: memoryview, digest: bytes, size: int) -> None:
        if (said.device, said.job, said.run) != (device.id, self.name, self.id):
            self._receipt(device.id, said.round, digest, "refused", "of another run")
            raise WireError("update.foreign", f"it is of device '{said.device}', job '{said.job}', run '{said.run}'")
        if self.job is None:
            raise WireError("update.early", "no round has been opened yet")
        try:
            update = unpack_answer(said, body, self.job.model.layout.size)
        except WireError as error:
            self._receipt(device.id, said.round, digest, "refused", str(error))
            raise
        device.seconds_per_step = said.seconds_per_step or device.seconds_per_step
        self.bytes_up += size
        self.rounds, actions = step(self.rounds, rounds.Answered(device.id, said.round, monotonic()))
        match actions:
            case (rounds.Late(), *_):
                self.late[device.id] = update
                self._receipt(device.id, said.round, digest, "accepted", "late, kept by policy")
            case (rounds.Ignore(reason=reason), *_):
                verdict = reason if reason in ("duplicate", "late") else "refused"
                self._receipt(device.id, said.round, digest, verdict, reason)
            case _:
                self.updates[device.id] = update
                device.doing = "answered"
                self._receipt(device.id, said.round, digest, "accepted")
                self.tell({"event": "answered", "device": device.id, "round": said.round, "bytes": size})
        for action in actions:
            self._perform(action)

    # ---- what is to be done ------------------------------------------------------------------------------------

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
                log.warning("abandoned round=%d why=%s", round, reason)
                self.tell({"event": "abandoned", "round": round, "reason": reason})
                self.updates.clear()
            case rounds.Finish(completed):
                self.timer = None
                log.info("finished rounds=%d", completed)

    def _invite(self, round: int, devices: tuple[str, ...], attempt: int) -> None:
        job, course, publisher = self._job()
        if self.extra is None or self.extra[0] != round:
            planned = jobs.plan(job, course)
            if planned is None:
                raise RunError(f"algorithm '{job.algorithm.name}' needs nobody in round {round}, its first")
            self.extra, self.opened = (round, planned), monotonic()
        previous = None
        if job.algorithm.uses_previous and course.previous is not None:
            previous = publisher.publish(round - 1, course.previous, {}).id
        made = publisher.publish(round, course.params, self.extra[1])
        self._say_state("training")
        self.tell({"event": "opened", "round": round, "devices": list(devices)})
        log.info("opened round=%d attempt=%d devices=%s", round, attempt, ",".join(devices))
        for id in devices:
            device = self.roster.devices[id]
            device.doing = "asked"
            self.bytes_down += len(made.frame)
            work = budget(device.seconds_per_step, self.run_file.rounds.deadline)
            self._say(
                id,
                Assignment(
                    job=self.name,
                    run=self.id,
                    round=round,
                    attempt=attempt,
                    model=made.id,
                    previous=previous,
                    graphs=publisher.graphs.id if publisher.graphs else None,
                    overtime=self.rounds.rules.late != "drop",
                    counted=self.rounds.counted.get(id, 0),
                    batches=work.batches,
                    seconds=work.seconds,
                ),
            )

    def _merge(self, round: int, devices: tuple[str, ...]) -> None:
        job, course, _ = self._job()
        updates = {id: self.updates[id] for id in devices}
        late, self.late = self.late, {}
        self.updates = {}
        population, spent, opened = len(self.roster), (self.bytes_up, self.bytes_down), self.opened
        self.total_up, self.total_down = self.total_up + self.bytes_up, self.total_down + self.bytes_down
        self.bytes_up = self.bytes_down = 0
        log.info("merging round=%d devices=%d", round, len(updates))
        self.worker.submit(self._work, job, course, updates, late, population, spent, opened)

    def _work(  # noqa: PLR0917 - everything the thread needs, so that it reads nothing of ours
        self,
        job: Job,
        course: Course,
        updates: Mapping[str, Update],
        late: Mapping[str, Update],
        population: int,
        spent: tuple[int, int],
        opened: float,
    ) -> None:
        """In the worker thread: this round, then those behind it that need nobody."""
        try:
            reports = []
            while True:
                course = jobs.advance(job, course, updates, population=population, late=late)
                traffic = {"bytes_up": spent[0], "bytes_down": spent[1]}
                took = monotonic() - opened
                reports.append(jobs.report(course, **traffic, seconds=took, devices=len(updates)))
                if jobs.finished(job, course) or jobs.plan(job, course) is not None:
                    break
                updates, late, spent, opened = {}, {}, (0, 0), monotonic()
            if self.folder:
                checkpoint.save(self.folder, job, course)
            self.inbox.put(Merged(course, tuple(reports)))
        except Exception as error:  # noqa: BLE001 - handed to the loop, which raises it
            self.inbox.put(Broken(error))

    def _merged(self, course: Course, reports: tuple[dict[str, Any], ...]) -> None:
        job, _, _ = self._job()
        self.course = course
        for report in reports:
            log.info("merged round=%d devices=%d took=%.2fs", report["round"], report["devices"], report["seconds"])
            self.tell(report)
        for device in self.roster.devices.values():
            device.doing = "idle" if device.online else "offline"
        self._feed(rounds.Merged(course.round, monotonic(), done=jobs.finished(job, course)))

    # ---- small things ------------------------------------------------------------------------------------------

    def _job(self) -> tuple[Job, Course, Publisher]:
        """The job, which the first round has to wait for."""
        if self.job is None or self.course is None or self.publisher is None:
            self.job = self.preparing.result() if self.preparing else self.prepare()
            self.course = jobs.begin(self.job)
            self.publisher = Publisher(self.transport, self.fleet, self.job)
        return self.job, self.course, self.publisher

    def _patience(self) -> float:
        return 1.0 if self.timer is None else min(1.0, max(0.0, self.timer[0] - monotonic()))

    def _tick(self) -> None:
        """A quiet moment: the timer, and devices that stopped in the middle of an upload."""
        now = monotonic()
        if self.timer is not None and now >= self.timer[0]:
            (_, timer), self.timer = self.timer, None
            self._feed(rounds.Expired(timer.round, timer.attempt, now))
        for device in self.roster.devices.values():
            if device.online and device.assembler.underway() and now - device.touched > SILENT:
                device.touched = now
                for digest in device.assembler.underway():
                    gaps = device.assembler.missing(digest)[:1024]
                    log.info("asked again device=%s chunks=%d", device.id, len(gaps))
                    self._say(device.id, Missing(digest=digest, indexes=tuple(gaps)))

    def _say(self, device: str, message: Assignment | Receipt | Refusal | Missing) -> None:
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            self.transport.publish(topics.down(self.fleet, self.name, device), part)

    def _say_state(self, phase: str | None = None) -> None:
        phases = {"open": "training", "merging": "training", "finished": "finished"}
        state = JobState(
            job=self.name,
            run=self.id,
            phase=phase or phases.get(self.rounds.phase, "gathering"),
            round=self.rounds.round,
        )
        self.transport.publish(topics.state(self.fleet, self.name), state.model_dump_json().encode(), retain=True)

    def _receipt(self, device: str, round: int, digest: bytes, verdict: str, reason: str = "") -> None:
        said = Receipt(job=self.name, round=round, digest=digest, verdict=verdict, reason=reason)
        self._say(device, said)

    def _refuse(self, id: str, presence: Presence, code: str, reason: str) -> None:
        self.refusals[code] += 1
        if not presence.online:
            return
        log.warning("refused device=%s code=%s why=%s", id, code, reason)
        self.tell({"event": "refused", "device": id, "code": code, "reason": reason})
        self._say(id, Refusal(code=code, reason=reason, fatal=True, installation=presence.installation))

    def _blaming(self, device: str) -> "_Blame":
        return _Blame(self, device)


class _Blame:
    """Bad input from the network is counted, logged and ignored; it never ends the run."""

    def __init__(self, coordinator: Coordinator, device: str) -> None:
        self.coordinator, self.device = coordinator, device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, WireError):
            return False
        self.coordinator.refusals[error.code] += 1
        log.warning("ignored device=%s code=%s why=%s", self.device, error.code, error)
        self.coordinator.tell({"event": "refused", "device": self.device, "code": error.code, "reason": str(error)})
        return True
