"""Several devices at a time in threads of this process: data are there once, and nothing is copied between them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue

from edgefl.job.run.job import Job
from edgefl.job.run.work import ModelRef, Result, Worker, WorkResult
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.base import Model
from edgefl.sim.engines import DeviceOrder, done, plan, result, workers
from edgefl.system import blas


class ThreadEngine:
    """As many models as may compute at the same time; a thread that trains borrows one."""

    def __init__(self, job: Job, devices: Mapping[str, Dataset], parallel: int, executor: ThreadPoolExecutor) -> None:
        self._workers, self._executor, self.parallel = workers(job.run, job.device_model, devices), executor, parallel
        self._idle: SimpleQueue[Model] = SimpleQueue()
        for model in (job.device_model, *(plan(job).model() for _ in range(parallel - 1))):
            self._idle.put(model)

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        """Train in the calling thread: an emulated fleet has threads of its own."""
        return [self._done(model_ref, order) for order in orders]

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        """The calling thread works too; each thread takes the next device until there is none."""
        done: dict[int, Result | Exception] = {}
        left = iter(enumerate(orders))

        def work() -> None:
            for i, order in left:
                try:
                    done[i] = self._result(order)
                except Exception as error:  # noqa: BLE001, PERF203 - the first in the order of devices is raised
                    done[i] = error
                    list(left)  # no other one is begun; those before it are done or in hand

        with blas.one_thread():
            others = [self._executor.submit(work) for _ in range(self.parallel - 1)]
            work()
            wait(others)
        return [_raised(done[i]) for i in range(len(orders))]

    def _done(self, model_ref: ModelRef, order: DeviceOrder) -> WorkResult:
        with self._equipped(order) as worker:
            return done(worker, model_ref, order)

    def _result(self, order: DeviceOrder) -> Result:
        with self._equipped(order) as worker:
            return result(worker, order)

    @contextmanager
    def _equipped(self, order: DeviceOrder) -> Iterator[Worker]:
        model = self._idle.get()
        try:
            yield replace(self._workers[order.device], model=model)
        finally:
            self._idle.put(model)


def _raised(outcome: Result | Exception) -> Result:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@contextmanager
def threads(job: Job, devices: Mapping[str, Dataset], parallel: int) -> Iterator[ThreadEngine]:
    """Start this number of threads; they end with the block."""
    with ThreadPoolExecutor(parallel, "training") as executor:
        yield ThreadEngine(job, devices, parallel, executor)
