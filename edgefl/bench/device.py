"""What training costs on a device: onnxruntime beside torch, one thread each."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np

from edgefl.bench.clock import turns
from edgefl.bench.report import Comparison
from edgefl.errors import RunError
from edgefl.models.base import Model
from edgefl.models.build import build_module
from edgefl.models.onnx.bundle import pack
from edgefl.models.onnx_backend import OnnxModel
from edgefl.processes import Child
from edgefl.vector import Array, Vector

STEPS = 20  # of a trainee, the first of which ends its cold start


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo on samples like those it is made for; `bar` is the largest ratio to torch."""

    network: str
    sample: tuple[int, ...]
    bar: float
    classes: int = 10
    batch: int = 32
    calls: int = 20  # steps per turn

    @property
    def tokens(self) -> bool:
        return len(self.sample) == 1


CASES = (
    Case("softmax", (1, 28, 28), 1.0, calls=200),
    Case("mlp", (1, 28, 28), 1.0, calls=100),
    Case("lenet5", (1, 28, 28), 1.0, calls=40),
    Case("cnn", (1, 28, 28), 1.2, calls=5),
    Case("sensor_cnn", (9, 128), 1.0, 6),
    Case("resnet9", (3, 32, 32), 1.2, batch=16, calls=1),
    Case("lstm", (32,), 1.2, 4),
    Case("transformer", (32,), 1.0, 4),
    Case("text", (32,), 1.0, 4),
)


def steps(cases: Sequence[Case], repeats: int) -> Iterator[Comparison]:
    """CPU milliseconds of a training step (forward and pullback) on both back-ends, case by case."""
    from edgefl.models.onnx_export import export  # noqa: PLC0415 - torch, which trainees of this module go without
    from edgefl.models.torch_backend import TorchModel, initial_params  # noqa: PLC0415

    for case in cases:
        module = build_module(case.network, case.sample, case.classes, seed=0)
        bundle = export(module, case.sample, dtype="int64" if case.tokens else "float32")
        w, x = initial_params(module), batch(case)
        ours, reference = stepper(OnnxModel(bundle), w, x), stepper(TorchModel(module), w, x)
        samples = turns(ours, reference, repeats=repeats, calls=case.calls)
        yield Comparison(f"{case.network}, batch of {case.batch}", "ms", *samples, bar=case.bar)


def batch(case: Case) -> Array:
    """A made-up batch."""
    rng, shape = np.random.default_rng(0), (case.batch, *case.sample)
    return rng.integers(0, 4096, shape) if case.tokens else rng.normal(size=shape).astype(np.float32)


def stepper(model: Model, w: Vector, x: Array) -> Callable[[], Vector]:
    """One step: forward, and back from a made-up gradient."""

    def step() -> Vector:
        z, pullback = model.vjp(w, x)
        return pullback(z / len(x))

    return step


@dataclass(frozen=True, slots=True)
class Trainee:
    """What a fresh process said about itself."""

    peak_mb: float
    start_seconds: float  # until its first step was done, as the clock on the wall has it
    start_cpu: float


def trainees(case: Case, command: Callable[[str, Path], list[str]], folder: Path, repeats: int) -> Iterator[Comparison]:
    """Memory and cold start of a training process for each back-end; `command` starts one, given its graphs' file."""
    from edgefl.models.onnx_export import export  # noqa: PLC0415 - as above

    graphs = folder / "graphs"
    graphs.write_bytes(pack(export(build_module(case.network, case.sample, case.classes, seed=0), case.sample)))
    ours, reference = list[Trainee](), list[Trainee]()
    for turn in range(repeats):
        for kind, seen in (("onnx", ours), ("torch", reference)):
            seen.append(_watch(command(kind, graphs), folder / f"{kind}-{turn}.log"))

    def both(what: str, unit: str, name: str, bar: float | None = None, limit: float | None = None) -> Comparison:
        sides = [[getattr(trainee, name) for trainee in seen] for seen in (ours, reference)]
        return Comparison(what, unit, sides[0], sides[1], bar, limit)

    yield both(f"{case.network}, peak memory of a process", "MB", "peak_mb", limit=90.0)
    yield both(f"{case.network}, cold start to first step, wall", "s", "start_seconds", bar=0.25)
    yield both(f"{case.network}, cold start to first step, CPU", "s", "start_cpu", bar=0.25)


def _watch(command: list[str], output: Path) -> Trainee:
    began = monotonic()
    child = Child(command, output)
    child.gone.wait()
    child.stop()
    if child.exit_code:
        raise RunError(f"a training process failed: {child.said()}")
    said = json.loads(output.read_text().splitlines()[-1])
    return Trainee(said["peak_mb"], said["first_step_at"] - began, said["first_step_cpu"])


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a fresh process."""
    return [sys.executable, "-m", module, *arguments]
