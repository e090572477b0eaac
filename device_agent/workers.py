"""From what was fetched to the work: the task as it is trained, and the worker for it; what cannot work is refused."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from device_agent.backends import MakeModel
from device_agent.model_cache import Item
from device_agent.order import Cancellation, Order, Watch
from device_agent.samples import Samples
from device_agent.vocabulary import Tasked
from edgefl.algorithms import registry
from edgefl.contract import Budget, Task
from edgefl.data.dataset import Dataset
from edgefl.data.labels import of_device
from edgefl.errors import ConfigError
from edgefl.losses import loss
from edgefl.privacy import Price
from edgefl.privacy.private import Private
from edgefl.protocol.codecs import codec
from edgefl.protocol.messages import Manifest
from edgefl.run.work import Done, ModelRef, Worker, unpack_broadcast
from edgefl.vector import State

DoWork: TypeAlias = Callable[[Worker, Task, ModelRef, State, Watch], Done]  # `Worker.work`, or somebody who has it done


@dataclass(frozen=True, slots=True)
class InProcess:
    """Trains here, with what this process has."""

    device: str
    samples: Samples
    make_model: MakeModel
    allowed: AbstractSet[str] = frozenset()  # `package.module:name` of code that a job may name
    work: DoWork = Worker.work

    def __call__(self, order: Order, watch: Watch, cancelled: Cancellation) -> tuple[Done, Price | None]:
        """The work that was ordered, and what it cost."""
        manifest = order.item.manifest
        task = open_task(order.task, order.item, order.previous, order.most, self.allowed)
        here = self.device, self.samples, self.make_model
        worker = make_worker(*here, manifest, order.graphs, allowed=self.allowed)
        cancelled.covers(worker.model)
        done = self.work(worker, task, order.model_ref, order.state, watch)
        return done, worker.price(task.round)


def open_task(
    task: Tasked, item: Item, earlier: bytes | bytearray | None, most: int, allowed: AbstractSet[str]
) -> Task:
    """The task with its model, and the one before it where there is one, opened: at most so many bytes each."""
    size, coded = item.manifest.layout.layout().size, codec(item.manifest.down, "down", allowed=allowed)
    params, extra = unpack_broadcast(item.frame, size, most, coded)
    previous = unpack_broadcast(earlier, size, most, coded)[0] if earlier else None
    return Task(task.round, params, Budget(task.batches, task.seconds), extra, previous)


def make_worker(
    device: str,
    samples: Samples,
    make_model: MakeModel,
    manifest: Manifest,
    graphs: bytes | bytearray | None,
    *,
    allowed: AbstractSet[str],
) -> Worker:
    """The device half of the job behind the manifest."""
    data = samples.current(lambda data: fitted(device, data, manifest))
    return Worker(
        manifest.job,
        device,
        registry.algorithm(manifest.algorithm, allowed),
        make_model(manifest, graphs),
        data,
        loss(manifest.loss, allowed),
        codec(manifest.codec, "up", allowed=allowed),
        manifest.seed,
        manifest.compress,
        secret=True,
    )


def fitted(device: str, data: Dataset, manifest: Manifest) -> Dataset:
    """The samples as this job needs them."""
    if data.shape != manifest.sample:
        raise ConfigError(
            f"device '{device}': its samples have shape {list(data.shape)}, the model"
            f" '{manifest.network}' wants {list(manifest.sample)}; correct data.source or the run file's task"
        )
    return of_device(data, manifest.classes, manifest.class_names, f"device '{device}'")


def price(manifest: Manifest, round: int, samples: int, allowed: AbstractSet[str]) -> Price | None:
    """What must be counted when this round's update is computed, if the algorithm promises privacy."""
    algorithm = registry.algorithm(manifest.algorithm, allowed)
    if not isinstance(algorithm, Private):
        return None
    return algorithm.price(round, samples, manifest.layout.layout())
