"""What our algorithms cost beyond the arithmetic that cannot be avoided."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgefl.base.vector import Layout, Vector, dot
from edgefl.job.config.schema import Learning, RoundRules, RunFile, RunSection
from edgefl.job.run.job import Job
from edgefl.learn.aggregation import mean
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedgc import FedGC, Sgc
from edgefl.learn.algorithms.gradma import Memory
from edgefl.learn.contract import Draft, Site, Task, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import LOSSES, cross_entropy
from edgefl.learn.models.base import Model
from edgefl.learn.models.build import build_module
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.training.local import shuffled
from edgefl.ops.bench.clock import turns
from edgefl.ops.bench.noop import NOTHING, Blank
from edgefl.ops.bench.report import BenchComparison
from edgefl.sim.loop import simulate
from edgefl.wire.codecs import codec

SAMPLE, CLASSES = (1, 28, 28), 10  # as MNIST has them


@dataclass(frozen=True, slots=True)
class ProblemSizes:
    """How large the problems are; the defaults are those of our bars."""

    params: int = 1_000_000
    updates: int = 100  # rows of SGC and of GradMA's memory
    new: int = 10  # of them new in a round
    samples: int = 600  # on each of ten devices
    batches: int = 50  # the paper's
    networks: tuple[str, ...] = (
        "cnn",
        "mlp",
    )  # of FedGC's devices: the paper's, and one with the least work per number
    repeats: int = 3


def compare(sizes: ProblemSizes) -> Iterator[BenchComparison]:
    """Each algorithm beside what it is measured by, in CPU milliseconds."""
    for network in sizes.networks:
        yield fedgc_round(network, sizes)
    yield memory_stage(sizes)
    yield sgc_stage(sizes)
    yield simulator("mlp", sizes)


def network_of(name: str) -> tuple[Model, Vector]:
    """A network of the zoo as devices run it, and its first weights."""
    from edgefl.learn.models.onnx_export import export
    from edgefl.learn.models.torch_backend import initial_params

    module = build_module(name, SAMPLE, CLASSES, seed=0)
    return OnnxModel(export(module, SAMPLE)), initial_params(module)


def pictures(samples: int, seed: int = 0) -> Dataset:
    """Made-up pictures and labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, *SAMPLE)).astype(np.float32)
    return Dataset(x, rng.integers(0, CLASSES, samples), CLASSES)


def fedgc_round(network: str, sizes: ProblemSizes) -> BenchComparison:
    """FedGC's device half beside FedAvg's, with the same mini-batches and a direction that makes CGC push."""
    (model, start), data = network_of(network), pictures(sizes.samples)
    fedavg = FedAvg(batches=sizes.batches)
    fedgc = FedGC(batches=fedavg.batches, batch=fedavg.batch)
    task = Task(2, start)
    update, _ = fedavg.train(task, {}, _site(model, data))
    against = replace(task, previous=start + update.delta)
    return BenchComparison(
        f"FedGC on a device, {network}, {sizes.batches} batches, to FedAvg",
        "ms",
        *turns(
            lambda: fedgc.train(against, {}, _site(model, data)),
            lambda: fedavg.train(task, {}, _site(model, data)),
            repeats=2 * sizes.repeats,
        ),
        bar=1.05,
    )


def memory_stage(sizes: ProblemSizes) -> BenchComparison:
    """GradMA's stage with a full memory beside one pass over it: the inner product of every row with one vector.

    Both accumulate in float64, as every product that feeds a projection must; a float32 product of the matrix with a
    vector takes less than half the time of such a pass, and decides signs on fewer digits.
    """
    stage, site = Memory(size=sizes.updates), _site(Blank(Layout(("w",), ((sizes.params,),))), NOTHING)
    everybody = _updates(sizes.updates, sizes.params)
    _, state = stage.apply(_draft(1, everybody), {}, site)
    back = _draft(2, dict(list(_updates(sizes.updates, sizes.params, seed=1).items())[: sizes.new]))
    rows = [update.delta for update in everybody.values()]
    return BenchComparison(
        f"GradMA's memory of {sizes.updates}, {sizes.new} new, to one pass",
        "ms",
        *turns(
            lambda: stage.apply(back, state, site), lambda: [dot(row, back.step) for row in rows], repeats=sizes.repeats
        ),
        bar=3.0,
    )


def sgc_stage(sizes: ProblemSizes) -> BenchComparison:
    """FedGC's stage beside one BLAS product of the matrix of updates with itself."""
    stage, site = Sgc(), _site(Blank(Layout(("w",), ((sizes.params,),))), NOTHING)
    draft = _draft(1, _updates(sizes.updates, sizes.params))
    matrix = np.stack([update.delta for update in draft.updates.values()])
    return BenchComparison(
        f"SGC with {sizes.updates} updates, to one Gram product",
        "ms",
        *turns(lambda: stage.apply(draft, {}, site), lambda: matrix @ matrix.T, repeats=sizes.repeats),
        bar=3.0,
    )


def simulator(network: str, sizes: ProblemSizes) -> BenchComparison:
    """One round of ten devices in the simulator beside their bare training steps."""
    model, start = network_of(network)
    devices = {f"device-{i}": pictures(sizes.samples, i) for i in range(10)}
    job = _job(model, start, len(devices))
    return BenchComparison(
        f"Simulator, {network}, a round of 10 devices, to its bare steps",
        "ms",
        *turns(lambda: simulate(job, devices), bare_round(model, start, devices), repeats=sizes.repeats),
        bar=1.1,
    )


def bare_round(model: Model, start: Vector, devices: dict[str, Dataset]) -> Callable[[], None]:
    """An epoch of plain descent on each device, and nothing else."""

    def play() -> None:
        for data in devices.values():
            w, batches = start, shuffled(data, 32, np.random.default_rng(0))
            for _ in range(-(-len(data) // 32)):
                x, y = next(batches)
                z, pullback = model.vjp(w, x)
                w = w - np.float32(0.1) * pullback(cross_entropy(z, y)[1])

    return play


def _site(model: Model, data: Dataset) -> Site:
    return Site(model, data, np.random.default_rng(0))


def _updates(count: int, params: int, seed: int = 0) -> dict[str, Update]:
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(params, np.float32)  # devices agree a little, as they do in life
    return {
        f"device-{i:03d}": Update(rng.standard_normal(params, np.float32) + np.float32(0.1) * shared, 1.0, 1)
        for i in range(count)
    }


def _draft(round: int, updates: dict[str, Update]) -> Draft:
    step = mean(updates)
    return Draft(round, np.zeros_like(step), updates, step, len(updates))


def _job(model: Model, start: Vector, devices: int) -> Job:
    run = RunFile(
        run=RunSection(rounds=1),
        task=Learning(data=None, sample=SAMPLE, classes=CLASSES),
        rounds=RoundRules(cohort=devices),
    )
    return Job(
        run=run,
        algorithm=run.make_algorithm(),
        stages=run.make_stages(),
        model=model,
        device_model=model,
        graphs=None,
        start=start,
        loss=LOSSES["cross_entropy"],
        up=codec("float32"),
        down=codec("float32"),
        sample=SAMPLE,
        classes=CLASSES,
        public=NOTHING,
        test=None,
    )
