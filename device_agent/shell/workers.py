"""From what was fetched to the work: the task as it is trained, and the worker for it; what cannot work is refused."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias

from device_agent.decide.vocabulary import Tasked
from device_agent.shell.backends import MakeModel
from device_agent.shell.order import Cancellation, Item, TrainingOrder, Watch
from device_agent.shell.samples import Samples
from edgefl.base.errors import ConfigError, RemoteError
from edgefl.base.vector import State
from edgefl.job.run.statistics import raw_unit_constants
from edgefl.job.run.work import OWN, SHARED, ModelRef, Worker, WorkResult, unpack_broadcast
from edgefl.job.transforms.listing import device_transforms
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Budget, Task, is_personal
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.held_back import aside_of, set_aside
from edgefl.learn.data.labels import of_device
from edgefl.learn.losses import loss
from edgefl.learn.privacy import Price
from edgefl.learn.privacy.private import is_private
from edgefl.learn.tasks.kinds import checked
from edgefl.wire.codecs import codec
from edgefl.wire.messages import Manifest

_of_the_job = attrgetter(*(name for name in Manifest.model_fields if name not in {"round", "digest", "size"}))
FEWER = "the device's samples have become fewer since this task was booked; ask again"
DoWork: TypeAlias = Callable[[Worker, Task, ModelRef, State, Watch], WorkResult]  # `Worker.work`, or a client of it


@dataclass(slots=True)
class Bench:
    """The worker of the last task: it does for the next one, if all that it was made of is still the same."""

    worker: Worker | None = None
    made_for: tuple[Manifest, bytes | bytearray | None, float | None] | None = None
    made_from: tuple[Dataset, Dataset | None] | None = None  # the device's samples, and those it evaluates on

    def fits(self, manifest: Manifest, graphs: bytes | bytearray | None, held_back: float | None) -> bool:
        """Whether it was made for the same job: a model of another round changes nothing."""
        if self.made_for is None:
            return False
        before, their_graphs, share = self.made_for
        return graphs is their_graphs and held_back == share and bool(_of_the_job(before) == _of_the_job(manifest))


@dataclass(frozen=True, slots=True)
class InProcessWorker:
    """Trains here, with what this process has."""

    device: str
    samples: Samples
    make_model: MakeModel
    allowed: AbstractSet[str] = frozenset()  # `package.module:name` of code that a job may name
    work: DoWork = Worker.work
    bench: Bench = field(default_factory=Bench)

    def __call__(self, order: TrainingOrder, watch: Watch, cancelled: Cancellation) -> WorkResult:
        """Return the work that was ordered."""
        task = open_task(order.task, order.item, order.previous, order.most, self.allowed)
        worker = self._worker(order.item.manifest, order.graphs, order.task.held_back)
        check_enough(len(worker.data), order)
        cancelled.covers(worker.model)
        worker = replace(worker, hides=True) if order.hidden else worker
        done = self.work(worker, task, order.model_ref, order.state, watch)
        if order.keeps:
            done = replace(done, own=own_model(worker, task, done.kept if task.purpose == "train" else order.state))
        return done

    def _worker(self, manifest: Manifest, graphs: bytes | bytearray | None, held_back: float | None) -> Worker:
        bench, samples = self.bench, self.samples
        if bench.worker is not None and bench.fits(manifest, graphs, held_back) and not samples.changed():
            before, aside = bench.made_from or (None, None)
            if samples.data is before and samples.counted is aside:
                return bench.worker
        about = manifest, graphs
        bench.worker = make_worker(
            self.device, samples, self.make_model, *about, allowed=self.allowed, held_back=held_back
        )
        bench.made_for, bench.made_from = (*about, held_back), (samples.data, samples.counted)
        return bench.worker


def own_model(worker: Worker, task: Task, state: State) -> State:
    """Return the model this device would use now and the shared one, with what normalises samples for both.

    Nothing, if the algorithm leaves devices no models of their own.
    """
    algorithm = worker.algorithm
    if not is_personal(algorithm) or task.purpose == "describe":
        return {}
    own = algorithm.own(task.params, state, worker.model.layout)
    if own is task.params:  # nothing is kept of this run
        return {}
    return {OWN: own, SHARED: task.params, **raw_unit_constants(task.extra)}


def open_task(
    task: Tasked, item: Item, earlier: bytes | bytearray | None, most: int, allowed: AbstractSet[str]
) -> Task:
    """The task with its model, and the one before it where there is one, opened: at most `most` bytes each."""
    size, coded = item.manifest.layout.layout().size, codec(item.manifest.down, "down", allowed=allowed)
    params, extra = unpack_broadcast(item.frame, size, most, coded)
    previous = unpack_broadcast(earlier, size, most, coded)[0] if earlier else None
    budget = Budget(task.batches, task.seconds)
    return Task(task.round, params, budget, extra, previous, task.purpose, task.evaluates)


def make_worker(
    device: str,
    samples: Samples,
    make_model: MakeModel,
    manifest: Manifest,
    graphs: bytes | bytearray | None,
    *,
    allowed: AbstractSet[str],
    held_back: float | None = None,
) -> Worker:
    """The device half of the job behind the manifest; where models are evaluated here, with what was set aside.

    In a trial that is the share `held_back` of the device's part.
    """
    data, aside = samples.current(lambda data: fitted(device, data, manifest)), None
    left_out = samples.left_out
    if held_back is not None and samples.counted is None:
        left_out = () if left_out == () else None  # which rows these are is not known any more
        data, aside = set_aside(data, held_back, manifest.seed, device)
    elif held_back is not None and samples.counted is not None:
        aside = fitted(device, samples.counted, manifest) if len(samples.counted) else None
    algorithm = registry.algorithm(manifest.algorithm, allowed)
    return Worker(
        manifest.job,
        device,
        algorithm,
        make_model(manifest, graphs),
        data,
        checked(manifest.form).loss(loss(manifest.loss, allowed)),
        device_transforms(algorithm, codec(manifest.codec, "up", allowed=allowed)),
        manifest.seed,
        manifest.compress,
        secret=True,
        held_back=aside,
        describes=samples.describes,
        left_out=left_out,
    )


def fitted(device: str, data: Dataset, manifest: Manifest) -> Dataset:
    """The samples as this job needs them."""
    check_shape(f"device '{device}'", data, manifest)
    targets = manifest.target_names or manifest.targets
    names = manifest.class_names
    return of_device(data, manifest.classes, names, f"device '{device}'", targets, checked(manifest.form))


def check_shape(who: str, data: Dataset, manifest: Manifest) -> None:
    """Raise if the model wants samples of another shape."""
    if data.shape != manifest.sample:
        raise ConfigError(
            f"{who}: its samples have shape {list(data.shape)}, the model"
            f" '{manifest.network}' wants {list(manifest.sample)}; correct data.source or the run file's task",
            free_of_data=True,
        )


def trained_on(data: Dataset, samples: Samples, order: TrainingOrder) -> int:
    """How many of a device's samples the task trains on."""
    share = order.task.held_back if samples.held_back is None else None
    return len(data) - (0 if share is None else aside_of(len(data), share))


def check_enough(samples: int, order: TrainingOrder) -> None:
    """Raise if the data have become fewer since the task's privacy was booked."""
    if samples < order.fewest:
        raise RemoteError("privacy.samples", FEWER, free_of_data=True)


def price(manifest: Manifest, task: Tasked, samples: int, allowed: AbstractSet[str]) -> Price | None:
    """What must be counted when the task's update is computed, if the algorithm promises privacy."""
    algorithm = registry.algorithm(manifest.algorithm, allowed)
    if not is_private(algorithm) or task.purpose != "train":
        return None
    return algorithm.price(task.round, samples, manifest.layout.layout())
