"""Several devices at a time in processes, each of which has built its model and holds the data of all devices."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from edgefl.job.run.work import ModelRef, Result, Worker, WorkResult
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.engines import DeviceOrder, ModelRecipe, done, result, workers
from edgefl.system import main_guard


class Processes:
    """A pool whose processes have moved in."""

    def __init__(self, executor: ProcessPoolExecutor, parallel: int) -> None:
        self._executor, self.parallel = executor, parallel

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        return list(self._executor.map(partial(_done, model_ref), orders))

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        return list(self._executor.map(_result, orders))


@contextmanager
def processes(plan: ModelRecipe, devices: Mapping[str, Dataset], parallel: int) -> Iterator[Processes]:
    """Start this number of processes; they end with the block."""
    main_guard.check("compute.engine = 'processes'")
    # spawn: a forked copy of onnxruntime's or torch's threads would hang.
    given = plan, dict(devices)
    with ProcessPoolExecutor(parallel, get_context("spawn"), initializer=_move_in, initargs=given) as executor:
        yield Processes(executor, parallel)


_HERE: dict[str, Worker] = {}  # of a process in the pool: filled once, when it starts


def _move_in(plan: ModelRecipe, devices: Mapping[str, Dataset]) -> None:
    _HERE.update(workers(plan.run, plan.model(), devices))


def _done(model_ref: ModelRef, order: DeviceOrder) -> WorkResult:
    return done(_HERE[order.device], model_ref, order)


def _result(order: DeviceOrder) -> Result:
    return result(_HERE[order.device], order)
