"""From what was fetched to the work: the task as it is trained, and the worker for it; what cannot work is refused."""

from collections.abc import Set as AbstractSet

from device_agent.backends import MakeModel
from device_agent.model_cache import Item
from device_agent.samples import Samples
from device_agent.vocabulary import Tasked
from edgefl.algorithms import registry
from edgefl.contract import Budget, Task
from edgefl.data.dataset import Dataset
from edgefl.data.labels import of_device
from edgefl.errors import ConfigError
from edgefl.losses import loss
from edgefl.protocol.codecs import codec
from edgefl.protocol.messages import Manifest
from edgefl.run.work import Worker, unpack_broadcast


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
    data = samples.current(lambda data: _fitted(device, data, manifest))
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


def _fitted(device: str, data: Dataset, manifest: Manifest) -> Dataset:
    """The samples as this job needs them."""
    if data.shape != manifest.sample:
        raise ConfigError(
            f"device '{device}': its samples have shape {list(data.shape)}, the model"
            f" '{manifest.network}' wants {list(manifest.sample)}; correct data.source or the run file's task"
        )
    return of_device(data, manifest.classes, manifest.class_names, f"device '{device}'")
