"""Who does the local training of a simulation: this process, or a pool of processes. The results are the same bits."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Protocol

from edgefl import losses
from edgefl.config.schema import RunFile
from edgefl.contract import Task
from edgefl.data.dataset import Dataset
from edgefl.models.base import Model
from edgefl.models.build import build
from edgefl.models.onnx.bundle import unpack
from edgefl.models.onnx_backend import OnnxModel
from edgefl.run.job import Job
from edgefl.run.work import Done, ModelRef, Worker
from edgefl.vector import State


@dataclass(frozen=True, slots=True)
class Order:
    """One device's work on one round: the task, what the device kept from earlier ones, and its virtual pace if any."""

    device: str
    task: Task
    state: State
    pace: float | None = None  # seconds per step


class Engine(Protocol):
    """Somebody who trains, so many at a time."""

    parallel: int

    def train(self, model_ref: ModelRef, orders: Sequence[Order]) -> list[Done]:
        """The work of every order, in their order."""
        ...


def workers(run: RunFile, model: Model, devices: Mapping[str, Dataset]) -> dict[str, Worker]:
    """The device half of the run, for each device."""
    loss, code, algorithm = losses.loss(run.task.loss), run.wire.up_codec(), run.make_algorithm()
    return {
        name: Worker(run.run.name, name, algorithm, model, data, loss, code, run.run.seed, run.wire.compress)
        for name, data in devices.items()
    }


class InProcess:
    """One device after another, in this process."""

    parallel = 1

    def __init__(self, job: Job, devices: Mapping[str, Dataset]) -> None:
        self._workers = workers(job.run, job.device_model, devices)

    def train(self, model_ref: ModelRef, orders: Sequence[Order]) -> list[Done]:
        return [_work(self._workers[order.device], model_ref, order) for order in orders]


class Pool:
    """Several devices at a time, each in a process that has built its model and holds everybody's data."""

    def __init__(self, executor: ProcessPoolExecutor, parallel: int) -> None:
        self._executor, self.parallel = executor, parallel

    def train(self, model_ref: ModelRef, orders: Sequence[Order]) -> list[Done]:
        return list(self._executor.map(_train, [model_ref] * len(orders), orders))


@contextmanager
def engine(job: Job, devices: Mapping[str, Dataset], processes: int = 1) -> Iterator[Engine]:
    """The engine for so many processes; they end with the block."""
    if processes == 1:
        yield InProcess(job, devices)
        return
    given = job.run, job.graphs, job.sample, job.classes, dict(devices)
    # spawn: a forked copy of onnxruntime's or torch's threads would hang.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_move_in, initargs=given) as executor:
        yield Pool(executor, processes)


_HERE: dict[str, Worker] = {}  # of a process in the pool: filled once, when it starts


def _move_in(
    run: RunFile, graphs: bytes | None, sample: tuple[int, ...], classes: int, devices: Mapping[str, Dataset]
) -> None:
    model: Model
    if graphs is not None:
        model = OnnxModel(unpack(graphs), threads=run.compute.threads)
    else:
        compute = run.compute
        model, _ = build(run.task.model, sample, classes, run.run.seed, threads=compute.threads, device=compute.device)
    _HERE.update(workers(run, model, devices))


def _train(model_ref: ModelRef, order: Order) -> Done:
    return _work(_HERE[order.device], model_ref, order)


def _work(worker: Worker, model_ref: ModelRef, order: Order) -> Done:
    return replace(worker, pace=order.pace).work(order.task, model_ref, order.state)
