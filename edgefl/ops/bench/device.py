"""What training costs on a device: onnxruntime beside torch, one thread each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from edgefl.learn.models.build import build_module
from edgefl.learn.models.onnx.bundle import Bundle, pack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.ops.bench.cases import PLAN, RATE, Case, samples, training
from edgefl.ops.bench.clock import turns
from edgefl.ops.bench.report import BenchComparison
from edgefl.ops.bench.server import numbers_of
from edgefl.system.processes import python


def steps(cases: Sequence[Case], repeats: int) -> Iterator[BenchComparison]:
    """CPU milliseconds of a training step, from the choice of its samples to the new weights, beside eager torch."""
    from edgefl.learn.models.bare_torch import descended  # noqa: PLC0415 - torch, which trainees of this module go without
    from edgefl.learn.models.torch_backend import initial_params, use_threads  # noqa: PLC0415

    use_threads(1)
    for case in cases:
        module, data = build_module(case.network, case.sample, case.classes, seed=0), samples(case)
        model = OnnxModel(exported(case), batch=case.batch)
        ours = partial(training(model, initial_params(module), data, case.batch), case.calls)
        reference = partial(descended, module.train(), data, case.batch, RATE, case.calls)
        walks = turns(ours, reference, repeats=repeats)
        ours_each, bare = ([walk / case.calls for walk in side] for side in walks)
        yield BenchComparison(f"{case.network}, batch of {case.batch}", "ms", ours_each, bare, bar=case.bar)


def exported(case: Case) -> Bundle:
    """The graphs that a device gets."""
    from edgefl.learn.models.onnx_export import export  # noqa: PLC0415 - as above

    module = build_module(case.network, case.sample, case.classes, seed=0)
    return export(module, case.sample, dtype="int64" if case.tokens else "float32", plan=PLAN)


@dataclass(frozen=True, slots=True)
class TraineeReading:
    """What a fresh process said about itself."""

    peak_mb: float
    start_seconds: float  # until its first step was done, as the clock on the wall has it
    start_cpu: float


def trainees(case: Case, folder: Path, repeats: int) -> Iterator[BenchComparison]:
    """Memory and cold start of a training process for each back-end."""
    graphs = folder / "graphs"
    graphs.write_bytes(pack(exported(case)))
    ours, reference = list[TraineeReading](), list[TraineeReading]()
    for turn in range(repeats):
        for kind, seen in (("onnx", ours), ("torch", reference)):
            command = python("edgefl.ops.bench.training_process", kind, case.network, str(graphs))
            seen.append(_watch(command, folder / f"{kind}-{turn}.log"))

    def both(what: str, unit: str, name: str, bar: float | None = None, limit: float | None = None) -> BenchComparison:
        sides = [[getattr(trainee, name) for trainee in seen] for seen in (ours, reference)]
        return BenchComparison(what, unit, sides[0], sides[1], bar, limit)

    yield both(f"{case.network}, peak memory of a process", "MB", "peak_mb", limit=90.0)
    yield both(f"{case.network}, cold start to first step, wall", "s", "start_seconds", bar=0.25)
    yield both(f"{case.network}, cold start to first step, CPU", "s", "start_cpu", bar=0.25)


def boxed(case: Case, rounds: int, folder: Path) -> Iterator[BenchComparison]:
    """A whole agent with its box, beside the same in one process: memory, and a round."""
    graphs = folder / "graphs"
    graphs.write_bytes(pack(exported(case)))
    command = python("edgefl.ops.bench.boxed_process", case.network, str(graphs), str(rounds))
    numbers = numbers_of(command, folder / "boxed.log")
    whole = [numbers["pss_mb"]]
    yield BenchComparison(
        f"{case.network}, agent and box, memory (PSS)", "MB", whole, [numbers["here_mb"]], limit=100.0
    )
    for kind, excess in (("wall", 5.0), ("CPU", None)):
        sides = numbers[f"boxed_{kind}"], numbers[f"here_{kind}"]
        yield BenchComparison(f"{case.network}, a round in a box, {kind}", "ms", *sides, excess=excess)


def _watch(command: list[str], output: Path) -> TraineeReading:
    began = monotonic()
    numbers = numbers_of(command, output)
    return TraineeReading(numbers["peak_mb"], numbers["first_step_at"] - began, numbers["first_step_cpu"])
