"""The emulated fleet: the real round machine and the real device half on a virtual clock.

    queue ──▶ Turned, Broke, Mended ──▶ Joined, Lost ──▶ rounds.step ──▶ Invite ──▶ download, train, upload ──▶ Arrived
          ──▶ Arrived ────────────────▶ Answered ──────▶             ──▶ SetTimer ──────────────────────────▶ Expired
          ──▶ Expired, Merged ─────────────────────────▶             ──▶ Merge ─────────────────────────────▶ Merged

Training is done for real when a device is asked; the clock then says when its answer arrives. Only the order of
virtual times decides, so a run depends on its seed and on nothing else. An emulated device lives as the agent does:
it has one task in hand, a newer one takes its place, and what is trained is sent again after a lost connection.
A device that breaks down loses its work in hand and is back after a while.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from time import perf_counter, process_time
from typing import Any, TypeAlias

from coordinator import late as latecomers
from coordinator import rounds
from coordinator.beginning import rules
from coordinator.budgets import budget
from coordinator.emulated import Device, Work, fleet
from coordinator.late import Latecomer
from coordinator.rounds import Rounds, Rules, step, waiting
from edgefl import events, forgetting, seeds
from edgefl import job as jobs
from edgefl.algorithms.base import Budget, Task, Update
from edgefl.data.dataset import Dataset
from edgefl.errors import RunError
from edgefl.events import Tell
from edgefl.job import Course, Job
from edgefl.privacy import keep_spent
from edgefl.privacy.spending import spending
from edgefl.simulation.engines import Engine, Here, Order
from edgefl.simulation.loop import LIFE, Traffic, opened_update, previous_model
from edgefl.simulation.stragglers import cut
from edgefl.vector import State, Vector
from edgefl.work import Place, unpack_broadcast

REBOOT = 60.0  # virtual seconds until a device that broke down is back
PATIENCE = 100  # deadlines without a merge, after which nobody believes in the round any more
CYCLES = 3  # of the longest hours, after which neither


@dataclass(frozen=True, slots=True)
class Arrived:
    """A whole answer is at the coordinator."""

    device: str
    number: int


@dataclass(frozen=True, slots=True)
class Broke:
    """A device broke down over its task."""

    device: str
    asked: int


@dataclass(frozen=True, slots=True)
class Mended:
    """It is back."""

    device: str


@dataclass(frozen=True, slots=True)
class Turned:
    """The hours of a device began, or ended."""

    device: str
    awake: bool


Happening: TypeAlias = rounds.Event | Arrived | Broke | Mended | Turned


@dataclass(frozen=True, slots=True)
class Sent:
    """What the coordinator published for a round."""

    round: int
    size: int
    params: Vector
    extra: State
    previous: Vector | None
    place: Place


def emulate(
    job: Job,
    devices: Mapping[str, Dataset],
    tell: Tell = lambda _: None,
    *,
    engine: Engine | None = None,
) -> Course:
    """Play all rounds on the virtual clock; `tell` hears of each, and of the end."""
    return Emulator(job, devices, tell, engine or Here(job, devices)).run()


class Emulator:
    """The shell around the round machine: one queue, one loop that owns all state, no decisions about rounds."""

    def __init__(self, job: Job, devices: Mapping[str, Dataset], tell: Tell, engine: Engine) -> None:
        self.job, self.tell, self.engine = job, tell, engine
        self.seed, self.deadline = job.run.run.seed, job.run.rounds.deadline
        self.devices = fleet(job, devices)
        hours = [d.availability.on + d.availability.off for d in self.devices.values() if d.availability]
        self.patience = max(PATIENCE * self.deadline, CYCLES * max(hours, default=0.0))
        self.course = jobs.begin(job)
        self.now = self.merged = 0.0
        self.numbers = count()
        self.queue: list[tuple[float, int, Happening]] = []
        for device in self.devices.values():
            self._wake(device)
        self.rounds = Rounds(house_rules(job, self.devices))
        self.sent: Sent | None = None
        self.updates: dict[str, Update] = {}
        self.late: dict[str, Latecomer] = {}
        self.too_late = 0  # answers since the last merge
        self.spent, self.total = Traffic(), Traffic()
        self.waited = 0.0  # virtual seconds for devices, before the round in hand was opened
        self.began, self.cpu, self.since = perf_counter(), process_time(), perf_counter()

    # ---- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> Course:
        self.tell(jobs.opening(self.job))
        for device in self.devices.values():
            self._appear(device)
        while self.rounds.phase != "finished":
            if not self.queue or self.now - self.merged > self.patience:
                raise RunError(
                    f"the emulated fleet is stuck at {self.now:.0f} virtual seconds: {waiting(self.rounds)};"
                    " lower rounds.quorum, raise rounds.deadline or give the fleet better devices"
                )
            self.now, _, happening = heapq.heappop(self.queue)
            self._handle(happening)
        reached = None if self.course.reached is None else self.merged
        self.tell(
            jobs.summary(
                self.job,
                self.course,
                **self.total.summary(self.course),
                seconds=perf_counter() - self.began,
                cpu_seconds=process_time() - self.cpu,
                virtual_seconds=self.merged,
                virtual_seconds_to_target=reached,
                **spending(
                    self.job.algorithm,
                    self.job.model.layout,
                    {name: (device.samples, device.state) for name, device in self.devices.items()},
                ),
            )
        )
        return self.course

    def _handle(self, happening: Happening) -> None:
        match happening:
            case Arrived(name, number):
                if self.devices[name].due == number:
                    self._arrived(self.devices[name])
            case Broke(name, asked):
                if self.devices[name].asked == asked:
                    self._broke(self.devices[name])
            case Mended(name):
                self.devices[name].broken = False
                self._appear(self.devices[name])
            case Turned(name, awake):
                self._turned(self.devices[name], awake)
            case event:
                self._feed(event)

    def _feed(self, event: rounds.Event) -> None:
        self.rounds, actions = step(self.rounds, event)
        self._perform(actions)

    def _later(self, seconds: float, happening: Happening) -> int:
        """Put it on the queue; gives back its number."""
        number = next(self.numbers)
        if isinstance(happening, Arrived):
            happening = replace(happening, number=number)
        heapq.heappush(self.queue, (self.now + seconds, number, happening))
        return number

    # ---- devices come and go -----------------------------------------------------------------------------------

    def _wake(self, device: Device) -> None:
        """Begin: a device with hours starts somewhere in the middle of them."""
        hours = device.availability
        if hours is not None:
            moment = seeds.stream(self.seed, device.name, "availability").random() * (hours.on + hours.off)
            device.awake = moment < hours.on
            ends = hours.on if device.awake else hours.on + hours.off
            self._later(ends - moment, Turned(device.name, not device.awake))

    def _turned(self, device: Device, awake: bool) -> None:
        hours = device.availability
        if hours is not None:
            self._later(hours.on if awake else hours.off, Turned(device.name, not awake))
        device.awake = awake
        self._appear(device)

    def _broke(self, device: Device) -> None:
        self._drop(device)
        device.broken = True
        self._later(REBOOT, Mended(device.name))
        self._appear(device)

    def _drop(self, device: Device) -> None:
        """What the device has in hand is nobody's any more; if it was trained, the data were used."""
        if device.work and device.work.trained <= self.now:
            device.state = keep_spent(device.state, device.work.kept)
        device.work = None

    def _appear(self, device: Device) -> None:
        """Tell the machine, if the device has come or gone; on its return it sends what it has."""
        online, name = device.awake and not device.broken, device.name
        if online and name not in self.rounds.present:
            if device.work:
                self._send(device, device.work)
            self._feed(rounds.Joined(name, self.now, device.samples))
        elif not online and name in self.rounds.present:
            device.due = -1
            self._feed(rounds.Lost(name, self.now))

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _send(self, device: Device, work: Work) -> None:
        ready = max(self.now, work.trained)
        device.due = self._later(ready - self.now + device.hardware.upload(len(work.frame)), Arrived(device.name, 0))

    def _arrived(self, device: Device) -> None:
        work, device.work = device.work, None
        if work is None:
            return
        device.pace = work.pace or None
        self.spent.up += len(work.frame)
        self.rounds, actions = step(self.rounds, rounds.Answered(device.name, work.round, self.now, device.pace))
        match actions:
            case (rounds.Late(), *_):
                self.late[device.name] = Latecomer(work.round, work.update)
                self.too_late += 1
                device.state = work.kept
            case (rounds.Ignore(reason=reason), *_):
                self.too_late += reason == "late"
                device.state = keep_spent(device.state, work.kept)
            case _:
                self.updates[device.name] = work.update
                device.state = work.kept
        self._perform(actions)

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _perform(self, actions: tuple[rounds.Action, ...]) -> None:
        for action in actions:
            match action:
                case rounds.Invite(round, names, opening):
                    self._invite(round, [self.devices[name] for name in names], opening)
                case rounds.SetTimer(round, attempt, seconds):
                    self._later(seconds, rounds.Expired(round, attempt, self.now + seconds))
                case rounds.Merge(_, names):
                    self._merge(names)
                case rounds.Abandon(round, reason):
                    self.tell(events.Abandoned(round, reason))
                    self.updates.clear()
                case _:
                    pass

    def _invite(self, round: int, devices: list[Device], opening: int) -> None:
        sent, working = self._publish(round), []
        for device in devices:
            if device.work and (device.work.round, device.work.opening) == (round, opening):
                continue  # it is at it, or on its way
            self._drop(device)
            device.due, device.asked = -1, device.asked + 1
            rng = seeds.stream(self.seed, round, device.name, device.asked, "dropout")
            if device.dropout and rng.random() < device.dropout:
                self._later(rng.random() * self.deadline, Broke(device.name, device.asked))
                self._download(device, sent)
            else:
                working.append(device)
        paces = [device.hardware.pace(self.seed, round, device.name) for device in working]
        orders = [
            Order(
                device.name,
                Task(round, sent.params, self._budget(device, round, pace), sent.extra, sent.previous),
                device.state,
            )
            for device, pace in zip(working, paces, strict=True)
        ]
        for device, pace, done in zip(working, paces, self.engine.train(sent.place, orders), strict=True):
            update = opened_update(self.job, done.frame)
            trained = self.now + self._download(device, sent) + update.steps * pace
            device.work = Work(round, opening, done.frame, update, done.kept, pace, trained)
            self._send(device, device.work)

    def _publish(self, round: int) -> Sent:
        """The broadcast of a round, made once."""
        if self.sent is None or self.sent.round != round:
            job, course = self.job, self.course
            extra = jobs.plan(job, course)
            if extra is None:
                raise RunError(f"algorithm '{job.algorithm.name}' needs nobody in round {round}, its first")
            frame = jobs.broadcast(job, round, course.params, extra)
            params, told = unpack_broadcast(frame, job.model.layout.size, codec=job.down)
            place = Place(LIFE, sha256(frame).hexdigest()[:16])
            self.sent = Sent(round, len(frame), params, told, previous_model(job, course), place)
            self.waited = self.now - self.merged
        return self.sent

    def _download(self, device: Device, sent: Sent) -> float:
        """Seconds until the device has the model; who looks back and missed the last round fetches that one too."""
        if device.holds == sent.round:
            return device.hardware.download(0)
        returned = sent.previous is not None and device.holds != sent.round - 1
        size = sent.size * (2 if returned else 1)
        device.holds = sent.round
        self.spent.down += size
        return device.hardware.download(size)

    def _budget(self, device: Device, round: int, pace: float) -> Budget:
        """What the coordinator grants, what the device's own clock allows, and what a straggler makes of it."""
        granted = budget(device.pace, self.deadline)
        fits = int(granted.seconds / pace) if granted.seconds and pace else None
        limits = [
            n for n in (granted.batches, fits, cut(self.job, round, device.name, device.samples)) if n is not None
        ]
        return Budget(batches=max(1, min(limits))) if limits else Budget()

    def _merge(self, names: tuple[str, ...]) -> None:
        """Merge the round in hand, then those behind it that need nobody."""
        arrived = {name: self.updates[name] for name in names}
        policy = self.rounds.rules.late
        updates, late = latecomers.fold(policy, self.rounds.round, arrived, self.late)
        self.updates, self.late = {}, {}
        if policy == "drop":
            self._call_off()
        while True:
            before = self.course
            self.course = jobs.advance(self.job, before, updates, population=len(self.devices), late=late)
            self._report(updates, **forgetting.of_round(self.job, before, updates, self.course))
            if jobs.finished(self.job, self.course) or jobs.plan(self.job, self.course) is not None:
                break
            updates, late = {}, {}
        done = jobs.finished(self.job, self.course)
        self._later(0.0, rounds.Merged(self.course.round, self.now, done=done))

    def _call_off(self) -> None:
        """The round is over and nobody wants late answers: who still trains stops, as the agent does."""
        for device in self.devices.values():
            if device.work and device.work.trained > self.now:
                device.work, device.due = None, -1

    def _report(self, updates: Mapping[str, Update], **more: Any) -> None:
        now, spent = perf_counter(), self.spent
        self.tell(
            jobs.report(
                self.course,
                updates,
                bytes_up=spent.up,
                bytes_down=spent.down,
                seconds=now - self.since,
                waiting_seconds=0.0,  # the virtual ones cost nothing
                virtual_seconds=self.now - self.merged,
                virtual_waiting_seconds=self.waited,
                late=self.too_late,
                **more,
            )
        )
        self.total = Traffic(self.total.up + spent.up, self.total.down + spent.down)
        self.spent, self.too_late, self.merged, self.since, self.waited = Traffic(), 0, self.now, now, 0.0


def house_rules(job: Job, devices: Mapping[str, Device]) -> Rules:
    """The run's rules; where devices come and go, the first round is drawn from those that are there at its beginning.

    A quorum has to be there in any case.
    """
    wanted = rules(job.run, job.algorithm.cohort_rounds)
    if job.run.rounds.start_with is None and any(device.availability for device in devices.values()):
        return replace(wanted, start_with=max(wanted.quorum, sum(device.awake for device in devices.values())))
    return wanted
