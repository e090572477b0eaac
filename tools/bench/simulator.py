"""What a simulated round costs: beside its matrix products alone, and beside a bare loop in torch."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnxruntime

from edgefl.base.vector import Array, Layout
from edgefl.job.config.schema import Learning, RoundRules, RunFile, RunSection
from edgefl.job.run.job import Job, device_names
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import LOSSES
from edgefl.learn.models.build import build_module
from edgefl.learn.models.onnx.bundle import pack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.training.descent import step_plan
from edgefl.ops.bench.clock import Work
from edgefl.ops.bench.noop import NOTHING
from edgefl.ops.bench.report import BenchComparison
from edgefl.sim.engines import engine
from edgefl.sim.loop import simulate
from edgefl.wire.codecs import codec
from tools.bench.interleaved import TimeTaken, interleaved

BATCH, RATE, COHORT = 32, 0.1, 10
WORKERS = 2
MADE_UP = "synthetic"  # never loaded; without any name devices would evaluate, on samples that they do not train on


@dataclass(frozen=True, slots=True)
class BenchFleet:
    """A network, and devices that train it; `one` and `two` are the largest ratios to bare torch, by workers."""

    network: str
    sample: tuple[int, ...]
    classes: int
    devices: int
    samples: int  # of each
    rounds: int  # in one turn
    one: float
    two: float | None = None

    @property
    def tokens(self) -> bool:
        return len(self.sample) == 1


FLEETS = (
    BenchFleet("mlp", (1, 28, 28), 10, devices=100, samples=600, rounds=5, one=0.5, two=0.25),
    BenchFleet("cnn", (1, 28, 28), 10, devices=20, samples=64, rounds=1, one=0.77),
    BenchFleet("lstm", (32,), 4, devices=20, samples=256, rounds=2, one=0.77),
)
PRODUCTS = 1.5  # how many times its matrix products alone the MLP's round may take


def compare(fleets: Sequence[BenchFleet], repeats: int) -> Iterator[BenchComparison]:
    """Each fleet on one worker and on two beside bare torch, in milliseconds a round; the MLP beside its products too.

    One worker, bare torch and the products use one thread each and are compared by their CPU time; two workers are
    compared by the clock on the wall, with bare torch on one core.
    """
    for fleet in fleets:
        with ExitStack() as stack:
            taken = interleaved(sides(fleet, stack), repeats=repeats, calls=fleet.rounds)
        yield from _compared(fleet, taken)


def sides(fleet: BenchFleet, stack: ExitStack) -> dict[str, Work]:
    """What takes turns; each call plays `rounds` rounds. Workers end with the stack."""
    from tools.bench.bare_loop import BareLoop

    devices = {name: samples(fleet, i) for i, name in enumerate(device_names(fleet.devices))}
    job = job_of(fleet)
    module = build_module(fleet.network, fleet.sample, fleet.classes, seed=0)
    bare = BareLoop(module, tuple(devices.values()), cohort=COHORT, batch=BATCH, lr=RATE)
    work: dict[str, Work] = {"torch": partial(bare.play, fleet.rounds)}
    for workers in (1, WORKERS):
        training = stack.enter_context(engine(job, devices, workers))
        work[f"workers {workers}"] = partial(simulate, job, devices, engine=training)
    if fleet.network == "mlp":
        steps = fleet.rounds * COHORT * -(-fleet.samples // BATCH)
        work["products"] = partial(_repeated, products(job.model.layout), steps)
    return work


def _compared(fleet: BenchFleet, taken: dict[str, list[TimeTaken]]) -> Iterator[BenchComparison]:
    cpu = {side: [one.cpu for one in turns] for side, turns in taken.items()}
    wall = {side: [one.wall for one in turns] for side, turns in taken.items()}
    of = f"{fleet.network}, {fleet.samples} samples each"
    if "products" in taken:
        yield BenchComparison(f"{of}, to its matrix products", "ms", cpu["workers 1"], cpu["products"], bar=PRODUCTS)
    yield BenchComparison(f"{of}, one worker, CPU", "ms", cpu["workers 1"], cpu["torch"], bar=fleet.one)
    several = wall[f"workers {WORKERS}"]
    yield BenchComparison(f"{of}, {WORKERS} workers, wall", "ms", several, wall["torch"], bar=fleet.two)


def samples(fleet: BenchFleet, seed: int) -> Dataset:
    """Made-up samples of one device."""
    rng, shape = np.random.default_rng(seed), (fleet.samples, *fleet.sample)
    x: Array = rng.integers(0, 4096, shape) if fleet.tokens else rng.normal(size=shape).astype(np.float32)
    return Dataset(x, rng.integers(0, fleet.classes, fleet.samples), fleet.classes)


def job_of(fleet: BenchFleet) -> Job:
    """Plain averaging, one epoch, no evaluation: what is left is training."""
    from edgefl.learn.models.onnx_export import export
    from edgefl.learn.models.torch_backend import initial_params

    module = build_module(fleet.network, fleet.sample, fleet.classes, seed=0)
    run = RunFile(
        run=RunSection(rounds=fleet.rounds),
        task=Learning(data=MADE_UP, sample=fleet.sample, classes=fleet.classes),
        algorithm={"name": "fedavg", "lr": RATE, "batch": BATCH},
        rounds=RoundRules(cohort=COHORT),
    )
    algorithm, loss = run.make_algorithm(), LOSSES["cross_entropy"]
    dtype = "int64" if fleet.tokens else "float32"
    bundle = export(module, fleet.sample, dtype=dtype, plan=step_plan(algorithm, loss))
    model = OnnxModel(bundle)
    return Job(
        run=run,
        algorithm=algorithm,
        stages=run.make_stages(),
        model=model,
        device_model=model,
        graphs=pack(bundle),
        start=initial_params(module),
        loss=loss,
        up=codec("float32"),
        down=codec("float32"),
        sample=fleet.sample,
        classes=fleet.classes,
        public=NOTHING,
        test=None,
    )


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product: of which matrices, transposed or not, and the shape of what comes of it."""

    a: str
    b: str
    shape: tuple[int, int]
    transposed: str = ""  # "A" or "B"


def dense(layout: Layout) -> tuple[dict[str, tuple[int, int]], list[Product]]:
    """The matrices of one step of a network of dense layers, and their products.

    Of each layer: its output, the gradient of its weights and, but for the first, that of its input.
    """
    given, products = dict[str, tuple[int, int]](), list[Product]()
    for i, (out, into) in enumerate(shape for shape in layout.shapes if len(shape) == 2):
        x, w, dz = f"x.{i}", f"w.{i}", f"dz.{i}"
        given |= {w: (out, into), x: (BATCH, into), dz: (BATCH, out)}
        products += [Product(x, w, (BATCH, out), "B"), Product(dz, x, (out, into), "A")]
        products += [Product(dz, w, (BATCH, into))] if i else []
    return given, products


def products(layout: Layout) -> Work:
    """The products of one step by onnxruntime's own kernels, and nothing else."""
    from onnx import TensorProto, helper

    given, steps = dense(layout)
    results = {f"result.{i}": step.shape for i, step in enumerate(steps)}
    nodes = []
    for name, step in zip(results, steps, strict=True):
        turned: dict[str, Any] = {f"trans{side}": int(side == step.transposed) for side in "AB"}  # Any: as onnx has it
        nodes.append(helper.make_node("Gemm", [step.a, step.b], [name], **turned))
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    into, out = ([value(name, shape=shape) for name, shape in side.items()] for side in (given, results))
    graph = helper.make_graph(nodes, "products", into, out)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, rng = session.io_binding(), np.random.default_rng(0)
    for name, shape in given.items():
        binding.bind_ortvalue_input(name, _value(rng.normal(size=shape).astype(np.float32)))
    for name, shape in results.items():
        binding.bind_ortvalue_output(name, _value(np.zeros(shape, np.float32)))
    return partial(session.run_with_iobinding, binding)


def _value(array: Array) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _repeated(work: Work, times: int) -> None:
    for _ in range(times):
        work()
