"""An emulated device: a real agent on a machine with a number of steps per second, behind a line with a number of bytes
per second.

A machine has hours in which its line is up, may break down over its work, and is then back after a while with what was
on its disk. Training is done for real, by the engine, and takes its steps times the machine's pace.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import ceil, inf
from typing import Any

from device_agent.shell.board import Board
from device_agent.shell.order import Watch
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Hooks, Limits, Scope, TrainingSetup
from device_agent.shell.training import WorkDone, WorkFailed
from edgefl.base import seeds
from edgefl.base.vector import State
from edgefl.job.config.schema import EmulatedFleet, RunFile
from edgefl.job.run.job import Job
from edgefl.job.run.simulated_fleet import back_end
from edgefl.job.run.work import ModelRef, Worker, WorkResult
from edgefl.learn.contract import Algorithm, Batched, Budget, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.training.local import LocalTraining
from edgefl.sim import availability_trace
from edgefl.sim.availability_trace import Spans, until
from edgefl.sim.engines import DeviceOrder, Engine
from edgefl.sim.network import VirtualBroker
from edgefl.sim.stragglers import cut
from edgefl.sim.world import Process, World
from edgefl.system.hardware.profiles import Availability, Hardware, reference_seconds
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire import simulated_keys

REBOOT = 60.0  # virtual seconds until a device that broke down is back
FORWARD = 1 / 3  # of a step: what a batch takes that is only looked at


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """What a device is made of."""

    hardware: Hardware
    dropout: float
    availability: Availability | None
    spans: Spans | None = None  # of a trace, when it is there; None: there is no trace


@dataclass(frozen=True, slots=True)
class EmulatedContext:
    """What all devices share."""

    job: Job
    world: World
    broker: VirtualBroker
    engine: Engine
    coordinator: str  # its key
    executor: Executor | None = None  # for training several of them at a time
    failures: dict[int, Exception] = field(default_factory=dict)  # by round: the first training that failed


@dataclass(slots=True)
class EmulatedDevice:
    """One machine, and the agent on it while it is up."""

    name: str
    data: Dataset
    kind: DeviceKind
    around: EmulatedContext
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    process: Process | None = None
    agent: Agent | None = None
    offline_until: float = 0.0
    trainings: int = 0  # so far; names the draw of a breakdown
    failure: Exception | None = None  # of the last training that failed
    joules: float = 0.0  # that its work took so far, finished or not
    looking: float = 0.0  # virtual seconds that the last task took beside its steps, to evaluate models

    # ---- its life ----------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Switch it on, somewhere in the middle of its hours; gives back whether its line is up."""
        hours, world = self.kind.availability, self.around.world
        if self.kind.spans is not None:
            return self._begin_by_trace(self.kind.spans)
        if hours is not None:
            moment = seeds.stream(self._seed, self.name, "availability").random() * (hours.on + hours.off)
            self.offline_until = hours.on + hours.off - moment if moment >= hours.on else 0.0
            world.later(self.offline_until + hours.on - (moment if moment < hours.on else 0.0), self._goes_offline)
        self.boot()
        return self.offline_until <= world.now

    def _begin_by_trace(self, spans: Spans) -> bool:
        """Switch it on when it is there for the first time; each span ends with its line, the last with the machine."""
        world = self.around.world
        for _, end in spans:
            world.at(end, self._leaves)
        here = bool(spans) and spans[0][0] <= world.now
        if here:
            self.boot()
        elif spans:
            world.at(spans[0][0], self.boot)
        return here

    def _leaves(self) -> None:
        """A span of its trace is over: its line is down until the next one."""
        back = until(self.kind.spans or (), now := self.around.world.now)
        self.offline_until = back
        if back < inf:
            self.around.broker.cut(self.name, seconds=back - now)
        elif self.process is not None:
            self.process.kill()

    def boot(self) -> None:
        """Start the agent on whatever is on the disk."""
        around = self.around
        if self.offline_until == inf:  # it broke down in the last span of its trace
            return
        self.process = process = around.world.process(self.name)
        client = around.broker.client(self.name, self.kind.hardware.line, process)
        client.blocked = self.offline_until
        self.agent = agent = Agent(
            DeviceIdentity(
                self.name,
                around.job.run.broker.fleet,
                back_end=back_end(around.job),
                host="",
                board=Board(self.kind.hardware.profile.arch, self.kind.hardware.profile.memory_mb),
                signer=simulated_keys.signer(self._seed, self.name),
            ),
            process.wiring(client, self._seconds, around.executor),
            self.disk,
            TrainingSetup(self.data, lambda _manifest, _graphs: around.job.device_model, work=self._work),
            scope=Scope(coordinator=around.coordinator),
            limits=Limits(
                limit_mb=around.job.run.wire.limit_mb,
                allowed=_named(around.job.run),
                own_models=0,  # a simulation gives them to its caller (api/history.py)
            ),
            hooks=Hooks(
                new_id=lambda: sha256(self.name.encode()).hexdigest()[:32],
                entropy=simulated_keys.entropy(self._seed, self.name),
            ),
        )
        process.run(agent)

    def _goes_offline(self) -> None:
        """Its line is down for a while; it works on."""
        hours, world = self.kind.availability, self.around.world
        if hours is not None:
            self.offline_until = world.now + hours.off
            self.around.broker.cut(self.name, seconds=hours.off)
            world.later(hours.off + hours.on, self._goes_offline)

    def _breaks_down(self, training: int) -> None:
        """What it had in hand is lost, unless it has something else in hand by now; the disk is not."""
        if training == self.trainings and self.process is not None:
            self.process.kill()
            self.around.world.later(REBOOT, self.boot)

    # ---- its work ----------------------------------------------------------------------------------------------

    def _work(self, worker: Worker, task: Task, model_ref: ModelRef, state: State, _watch: Watch) -> WorkResult:
        """Train, at this machine's pace; what fails is declined as on a real device, and kept for the emulator."""
        pace = self.kind.hardware.pace(self._seed, task.round, self.name)
        most = cut(self.around.job, task.round, self.name, len(worker.data))
        order = DeviceOrder(self.name, replace(task, budget=_at_most(task.budget, most)), state, pace)
        self.looking = FORWARD * pace * _looks(worker, task)
        try:
            (done,) = self.around.engine.train(model_ref, [order])
        except Exception as error:
            self.failure = error
            raise
        return done

    def _seconds(self, events: Sequence[Any]) -> float:
        """How long the training took, by what it told; for ever, if the machine breaks down over it."""
        failed = next((event for event in events if isinstance(event, WorkFailed)), None)
        if failed is not None and self.failure is not None:
            self.around.failures.setdefault(failed.round, self.failure)
        trained = next((event for event in events if isinstance(event, WorkDone)), None)
        if trained is None:
            return 0.0
        self.trainings += 1
        rng = seeds.stream(self._seed, trained.round, self.name, self.trainings, "dropout")
        if self.kind.dropout and rng.random() < self.kind.dropout:
            seconds = float(rng.random()) * self.around.job.run.rounds.deadline
            self.joules += self.kind.hardware.training_joules(seconds)
            self.around.world.later(seconds, partial(self._breaks_down, self.trainings))
            return inf
        seconds = trained.done.steps * trained.done.seconds_per_step + self.looking
        self.joules += self.kind.hardware.training_joules(seconds)
        return seconds

    @property
    def _seed(self) -> int:
        return self.around.job.run.run.seed


def kinds(job: Job, devices: Mapping[str, Dataset]) -> dict[str, DeviceKind]:
    """What each device of a run is: an ideal one, unless its file says otherwise."""
    fleet = job.run.fleet or EmulatedFleet()
    profiles, spans = (
        fleet.kinds_of(tuple(devices), job.run.run.seed),
        availability_trace.of_run(job.run, devices) or {},
    )
    reference = reference_seconds(job.model.layout.trainable, _batch(job.algorithm), fleet.ms_per_step)
    by_device = {}
    for name in devices:
        profile = profiles[name]
        dropout = fleet.dropout if profile.dropout is None else profile.dropout
        hours = profile.availability or fleet.availability
        by_device[name] = DeviceKind(Hardware(profile, reference), dropout, hours, spans.get(name))
    return by_device


def _looks(worker: Worker, task: Task) -> int:
    """How many batches of what is set aside are shown to models: to the received one and, after training, its own."""
    if task.evaluates is None or worker.held_back is None or len(worker.held_back) < task.evaluates:
        return 0
    return ceil(len(worker.held_back) / _batch(worker.algorithm)) * (2 if task.purpose == "train" else 1)


def _batch(algorithm: Algorithm) -> int:
    return algorithm.batch if isinstance(algorithm, Batched) else LocalTraining().batch


def _named(run: RunFile) -> set[str]:
    """Code that the run names by its place: an emulated device may run it, if the operator named it (user_code.py)."""
    tables = run.algorithm, run.wire.up or {}, run.wire.down or {}
    names = {
        run.task.loss,
        run.wire.codec,
        *(value for table in tables for value in table.values() if isinstance(value, str)),
    }
    return {name for name in names if ":" in name}


def _at_most(budget: Budget, batches: int | None) -> Budget:
    if batches is None or (budget.batches is not None and budget.batches <= batches):
        return budget
    return replace(budget, batches=batches)
