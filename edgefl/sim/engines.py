"""Who does the local training of a simulation: one thread, several, several processes. The results are the same bits.

    InProcessEngine   one device after another
    ThreadEngine      several at a time, each with sessions of its own on the same graphs     engine_threads.py
    Processes         several at a time, each with a copy of everything                       engine_processes.py
    Ray               actors on a cluster                                                     engine_ray.py

Threads share the data and start at once; onnxruntime computes outside Python's lock. Torch holds the lock for most of a
small step, so its devices train in processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from edgefl.base.vector import State
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.job.run.work import ModelRef, Result, Worker, WorkResult
from edgefl.learn import losses
from edgefl.learn.contract import Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.held_back import set_aside
from edgefl.learn.models.base import Model
from edgefl.learn.models.build import build
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.tasks.form import Form
from edgefl.system import blas
from edgefl.system.resident_memory import freed_kept

KEPT = 1 << 30  # bytes: what the answers of a round may take, and be freed, without the kernel clearing them anew
RUN_ID = "0" * 12  # stands for the id of a run, and is as long, so that frames are too
NOWHERE = ModelRef(RUN_ID, "0" * 16)  # of a model that is not sent; as long as the place of one that is


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """One device's work on one round: the task, what the device kept from earlier ones, and its virtual pace if any."""

    device: str
    task: Task
    state: State
    pace: float | None = None  # seconds per step


class Engine(Protocol):
    """What trains devices, a number of them at a time."""

    parallel: int

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        """The work of every order as frames to send, in their order."""
        ...

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        """The work of every order as the coordinator will have it, in their order; nothing is packed."""
        ...


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """What another process needs to make a device's model."""

    run: RunFile
    graphs: bytes | None
    sample: tuple[int, ...]
    outputs: int
    form: Form

    def model(self) -> Model:
        """Make a model for one process or thread: a session's memory serves one call at a time."""
        compute = self.run.compute
        if self.graphs is not None:
            return OnnxModel(unpack(self.graphs), threads=compute.threads)
        network = self.run.task.model, self.sample, self.outputs, self.run.run.seed
        return build(*network, threads=compute.threads, device=compute.device, form=self.form)[0]


def plan(job: Job) -> ModelRecipe:
    """What a job's devices are made of."""
    return ModelRecipe(job.run, job.graphs, job.sample, job.outputs, job.form)


def workers(run: RunFile, model: Model, devices: Mapping[str, Dataset]) -> dict[str, Worker]:
    """The device half of the run, for each device."""
    plain, algorithm = losses.loss(run.task.loss), run.make_algorithm()
    by_name = {}
    for name, (data, aside) in held(run, devices).items():
        loss = data.form.loss(plain)
        about = run.run.name, name, algorithm, model, data, loss, run.transforms, run.run.seed, run.wire.compress
        by_name[name] = Worker(*about, held_back=aside)
    return by_name


def held(run: RunFile, devices: Mapping[str, Dataset]) -> dict[str, tuple[Dataset, Dataset | None]]:
    """What each device trains on and, where models are evaluated on devices, what it has set aside."""
    if not run.judged_by_devices:
        return {name: (data, None) for name, data in devices.items()}
    share, seed = run.evaluation.held_back, run.run.seed
    return {name: set_aside(data, share, seed, name) for name, data in devices.items()}


class InProcessEngine:
    """One device after another, in this thread."""

    parallel = 1

    def __init__(self, job: Job, devices: Mapping[str, Dataset]) -> None:
        self._workers = workers(job.run, job.device_model, devices)

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        return [done(self._workers[order.device], model_ref, order) for order in orders]

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        with blas.one_thread():
            return [result(self._workers[order.device], order) for order in orders]


def done(worker: Worker, model_ref: ModelRef, order: DeviceOrder) -> WorkResult:
    """What the device sends."""
    return _paced(worker, order).work(order.task, model_ref, order.state)


def result(worker: Worker, order: DeviceOrder) -> Result:
    """What the coordinator has of it."""
    return _paced(worker, order).result(order.task, NOWHERE, order.state)


def _paced(worker: Worker, order: DeviceOrder) -> Worker:
    return worker if order.pace is None else replace(worker, pace=order.pace)


@contextmanager
def engine(job: Job, devices: Mapping[str, Dataset], parallel: int | None = None) -> Iterator[Engine]:
    """The engine that the run file asks for, for a number of devices at a time; it ends with the block.

    Unless it is said, they are one here, and on a cluster as many as it has processors.
    """
    kind, several = job.run.compute.engine, parallel or 1
    if kind == "auto" and several > 1:
        kind = "processes" if job.graphs is None else "threads"
    with freed_kept(KEPT):
        if kind == "ray":
            from edgefl.sim.engine_ray import ray_actors  # noqa: PLC0415 - where it is needed

            with ray_actors(plan(job), devices, parallel) as actors:
                yield actors
        elif kind == "processes":
            from edgefl.sim.engine_processes import processes  # noqa: PLC0415 - as above

            with processes(plan(job), devices, several) as pool:
                yield pool
        elif kind == "threads":
            from edgefl.sim.engine_threads import threads  # noqa: PLC0415 - as above

            with threads(job, devices, several) as pool_here:
                yield pool_here
        else:
            yield InProcessEngine(job, devices)
