"""The machines of a simulated fleet: each has a disk of its own, and lives one after another on it.

A process that is killed leaves its disk as it was; a power cut leaves of what was not synced whatever chance leaves.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np

from coordinator.decide.vocabulary import Stop
from coordinator.durable import checkpoint
from coordinator.durable.journal import Journal
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.merging import PreparedJob
from coordinator.shell.service import Coordinator
from coordinator.shell.setup import Security
from device_agent.decide.vocabulary import Stopped
from device_agent.shell.board import Board
from device_agent.shell.data_watch import DataChecked
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Hooks, Scope, TrainingSetup
from device_agent.shell.training import WorkDone
from edgefl.base.errors import StoreError
from edgefl.base.events import Fact
from edgefl.base.vector import State
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.job.run.work import ModelRef, Worker, WorkResult
from edgefl.learn.contract import Task, traits_of
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.world import Process, World
from edgefl.wire import simulated_keys
from edgefl.wire.messages import TO_COORDINATOR, Answer, frame, read
from edgefl.wire.signing import Signer
from tools.chaos.scenario import Lie, Scenario, ScenarioDevice
from tools.chaos.softmax import make_job, samples
from tools.failing_disk import FailingDisk
from tools.faulty_network import FaultyBroker

FLEET = "default"
AGAIN = 5.0  # seconds until a service that could not start is started again


@dataclass(frozen=True, slots=True)
class MachineContext:
    """What all machines share."""

    scenario: Scenario
    world: World
    broker: FaultyBroker
    signer: Signer
    keys: DeviceKeys  # of the fleet: they outlive every coordinator
    note: Callable[[str, str], None]  # something for the story


class ChaosMachine(ABC):
    """A disk, and the service that uses it."""

    def __init__(self, name: str, around: MachineContext) -> None:
        self.name, self.around = name, around
        self.disk = FailingDisk(name)
        self.process: Process | None = None
        self.lives = 0
        self.ahead = 0.0  # seconds that its clock on the wall is fast
        self.ended = False  # it has done all it was there for
        self.down_since: float | None = None

    def boot(self) -> None:
        """Start whatever runs here, on what is on the disk."""
        if self.process is not None or self.ended:
            return
        self.lives += 1
        self.process = process = self.around.world.process(self.name)
        process.clock.ahead = self.ahead
        try:
            self.begin(process)
        except StoreError as error:
            self.around.note(self.name, f"cannot start: {error}")
            self.kill()
            self.around.world.later(AGAIN, self.boot)
        else:
            self.down_since = None

    @abstractmethod
    def begin(self, process: Process) -> None:
        """Make the shell, and run it."""

    def kill(self, *, silent: bool = False) -> None:
        """Its process is gone in this moment; the disk stays."""
        if self.process is not None:
            self.process.kill(silent=silent)
            self.process = None
            self.down_since = self.around.world.now

    def power_cut(self) -> None:
        """Switch the machine off without a word; its disk is as such a disk may be found."""
        self.kill(silent=True)
        self.disk.crash(Random(f"{self.around.scenario.seed}/crash/{self.name}/{self.lives}"))

    @property
    def dark(self) -> bool:
        """Whether the disk has just said that its power is gone."""
        return self.disk.power is not None and self.disk.power < 0

    @abstractmethod
    def stop(self) -> None:
        """Its operator ends it, politely."""

    @property
    def client(self) -> str:
        """What it is called at the broker."""
        return self.name


class DeviceMachine(ChaosMachine):
    """A device: a real agent, at its own pace."""

    def __init__(self, member: ScenarioDevice, around: MachineContext, *, installation: str = "") -> None:
        super().__init__(installation or member.name, around)
        self.member, self.installation = member, installation or member.name
        self.data: Dataset = samples(around.scenario.seed, member.name, member.samples)
        self.agent: Agent | None = None

    def begin(self, process: Process) -> None:
        member, around = self.member, self.around
        name = f"{around.scenario.seed}/{self.installation}"
        self.agent = agent = Agent(
            DeviceIdentity(
                member.name,
                FLEET,
                "torch",
                host=self.installation,
                board=Board(),
                signer=simulated_keys.signer(name),
            ),
            process.wiring(around.broker.client(member.name, member.line, process), self._seconds),
            self.disk,
            TrainingSetup(
                self.data,
                lambda _manifest, _graphs: make_job(around.scenario.runs[0]).device_model,
                work=self._work,
            ),
            scope=Scope(coordinator=around.signer.key),
            hooks=Hooks(
                new_id=lambda: sha256(name.encode()).hexdigest()[:32],
                entropy=simulated_keys.entropy(name),
            ),
        )
        process.run(agent, partial(self._at_end, process))

    @property
    def client(self) -> str:
        return self.member.name

    @property
    def lies(self) -> bool:
        """Whether it does so now."""
        return self.member.lie is not None and self.around.world.now < self.around.scenario.healed

    def stop(self) -> None:
        if self.process is not None:
            self.process.put(Stopped())

    def repent(self) -> None:
        """End the attack, and clear the false updates that were not sent yet."""
        self.kill()
        for name in self.disk.names("*.spool"):
            self.disk.remove(name)

    def _at_end(self, process: Process) -> None:
        """What its owner does: see `device_agent.start.AgentHost`."""
        if self.agent is not None:
            self.agent.transport.flush(5.0)
            self.agent.transport.close()
        if self.process is process:
            self.process, self.down_since = None, self.around.world.now

    def _seconds(self, told: Sequence[Any]) -> float:
        """How long a training took, by what it told."""
        trainings = (one for one in told if not isinstance(one, DataChecked))
        steps = [one.done.steps if isinstance(one, WorkDone) else one.steps for one in trainings]
        return max(steps, default=0) * self.member.pace

    def _work(self, worker: Worker, task: Task, model_ref: ModelRef, state: State, watch: Any) -> WorkResult:
        done = replace(worker, pace=self.member.pace, secret=False).work(task, model_ref, state, watch)
        if self.member.lie is None or not self.lies:
            return done
        return replace(done, frame=_lied(self.member.lie, done.frame, task.round))


class CoordinatorMachine(ChaosMachine):
    """A coordinator of one run."""

    def __init__(self, run: RunFile, around: MachineContext, tell: Callable[[str, Fact], None]) -> None:
        super().__init__(run.run.name, around)
        self.run, self.job, self.tell = run, make_job(run), tell
        self.shell: Coordinator | None = None

    @property
    def client(self) -> str:
        return f"coordinator-{self.name}"

    def asked(self, last: int) -> list[int]:
        """The rounds up to the last that ask devices for updates, or first for what their data are like."""
        free = traits_of(self.job.algorithm).free_rounds
        return [*range(self.run.schedule.first, min(1, last + 1)), *range(1, last + 1, 2 if free else 1)]

    def begin(self, process: Process) -> None:
        around = self.around
        self.shell = shell = Coordinator(
            self.run,
            process.wiring(around.broker.client(self.client, process=process), self._seconds),
            self._prepare,
            journal=Journal(self.disk, clock=process.clock),
            tell=lambda fact: self.tell(self.name, fact),
            security=Security(around.signer, around.keys),
            run_id=sha256(f"{around.scenario.seed}/{self.name}".encode()).hexdigest()[:12],
        )
        process.run(shell, partial(self._at_end, shell))

    def stop(self) -> None:
        if self.process is not None:
            self.process.put(Stop())

    def rot(self) -> None:
        """Damage the newest checkpoint."""
        for name in checkpoint.generations(self.disk)[-1:]:
            raw = bytearray(self.disk.read(name) or b"")
            raw[len(raw) // 2] ^= 0xFF
            capacity, self.disk.capacity = self.disk.capacity, None
            self.disk.write(name, raw)
            self.disk.capacity = capacity

    def _prepare(self) -> Job:
        return self.job

    def _at_end(self, shell: Coordinator) -> None:
        self.process, self.down_since = None, self.around.world.now
        self.ended = shell.error is None

    def _seconds(self, told: Sequence[Any]) -> float:
        prepared = any(isinstance(event, PreparedJob) for event in told)
        return self.around.scenario.preparing if prepared else self.around.scenario.merging


def _lied(lie: Lie, data: bytes | bytearray, round: int) -> bytes:  # noqa: PLR0911  one lie, one line
    """What a device sends instead of its answer."""
    answer, opened = read(TO_COORDINATOR, data, limit=1 << 20)
    assert isinstance(answer, Answer)  # noqa: S101 - it has just been made
    body = bytes(opened.body)
    match lie:
        case "torn":
            return frame(answer, (body[:-4],))
        case "not a number":
            return frame(answer, (np.full(len(body) // 4, np.nan, "<f4").tobytes().ljust(len(body), b"\0"),))
        case "huge":
            return frame(answer.model_copy(update={"weight": 1e11}), (body,))
        case "round":
            return frame(answer.model_copy(update={"round": round + 1}), (body,))
        case "run":
            return frame(answer.model_copy(update={"run_id": "another"}), (body,))
        case "name":
            return frame(answer.model_copy(update={"device": "d9"}), (body,))
        case "model":
            return frame(answer.model_copy(update={"model": "0" * 16}), (body,))
        case "counts":
            return frame(answer, (_miscounted(answer, body),))
        case "stale":
            return frame(answer.model_copy(update={"round": max(1, round - 1)}), (body,))


def _miscounted(answer: Answer, body: bytes) -> bytes:
    """The same, with fewer samples than none in every table."""
    parts, start = [], 0
    for tensor in answer.tensors:
        part = body[start : start + tensor.bytes]
        parts.append(b"\xff" * len(part) if tensor.name.endswith(("/table", "/samples")) else part)
        start += tensor.bytes
    return b"".join(parts)
