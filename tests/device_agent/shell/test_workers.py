"""The worker of a task does for the next one, as long as nothing that it was made of has changed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from device_agent.decide.vocabulary import Tasked
from device_agent.shell.order import Cancellation, Item, TrainingOrder
from device_agent.shell.samples import Samples
from device_agent.shell.workers import InProcessWorker
from edgefl.base.vector import Layout
from edgefl.job.run.work import Worker, WorkResult, pack_broadcast
from edgefl.learn.contract import Task
from edgefl.learn.data.dataset import Dataset
from edgefl.ops.bench.noop import Blank
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import Manifest, Shape

LAYOUT = Layout(("w",), ((4,),))
MANIFEST = Manifest(
    job="j", run_id="r", round=1, digest="0" * 64, size=9, layout=Shape.of(LAYOUT), algorithm={"name": "fedavg"},
    network="mlp", sample=(1,), classes=2, loss="cross_entropy", codec="float32", seed=1,
)  # fmt: skip
FRAME = pack_broadcast("j", 1, np.zeros(4, np.float32), {}, Float32())
TASK = Tasked("j", "r", 1, "0" * 16, purpose="evaluate")


def data(samples: int = 10) -> Dataset:
    return Dataset(np.zeros((samples, 1), np.float32), np.zeros(samples, np.int64), 2)


class Watched:
    """Remembers who worked."""

    def __init__(self, samples: Samples | None = None) -> None:
        self.workers: list[Worker] = []
        self.samples = samples or Samples(data())
        self.train = InProcessWorker("pi", self.samples, lambda *_: Blank(LAYOUT), work=self.work)

    def work(self, worker: Worker, _task: Task, *_: Any) -> WorkResult:  # Any: what a worker gets
        self.workers.append(worker)
        return WorkResult(b"", {}, 0.0)

    def order(self, manifest: Manifest = MANIFEST, graphs: bytes | None = None, task: Tasked = TASK) -> Worker:
        order = TrainingOrder(task, Item(manifest, FRAME), None, graphs, {}, 1 << 20)
        self.train(order, lambda _: None, Cancellation())
        return self.workers[-1]


def test_the_next_round_is_done_by_the_same_worker() -> None:
    here = Watched()
    first = here.order()
    assert here.order(MANIFEST.model_copy(update={"round": 2, "digest": "1" * 64, "size": 10})) is first


@pytest.mark.parametrize(
    "other", [{"run_id": "s"}, {"seed": 2}, {"algorithm": {"name": "fedprox"}}, {"codec": "float16"}, {"job": "k"}]
)
def test_another_job_is_not(other: dict[str, Any]) -> None:
    here = Watched()
    first = here.order()
    second = here.order(MANIFEST.model_copy(update=other))
    assert second is not first
    assert here.order() is not second


def test_nor_other_graphs_or_another_share_that_is_held_back() -> None:
    here, graphs = Watched(), b"graphs"
    first = here.order(graphs=graphs)
    assert here.order(graphs=graphs) is first
    assert here.order(graphs=bytes(bytearray(graphs))) is not first
    trial = here.order(task=replace(TASK, held_back=0.2))
    assert trial.held_back is not None
    assert here.order(task=replace(TASK, held_back=0.2)) is trial
    assert here.order(task=replace(TASK, held_back=0.5)) is not trial


def test_nor_other_samples() -> None:
    newest, version = [data()], [1]
    here = Watched(Samples(newest[0], None, lambda: (newest[0], None), lambda: version[0], 1))
    first = here.order()
    assert here.order() is first
    newest[0], version[0] = data(20), 2
    assert len(here.order().data) == 20
