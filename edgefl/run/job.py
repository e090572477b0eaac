"""A job and where it stands: what the coordinator knows and does between rounds, whoever drives it.

A job never changes; a run's state is a value that each round replaces. Loop, emulator and coordinator all call these.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edgefl import losses, robustness, seeds
from edgefl.aggregation import merge
from edgefl.config.schema import RunFile
from edgefl.contract import Algorithm, Site, Stage, Update, rate
from edgefl.data.catalog import load
from edgefl.data.dataset import Dataset
from edgefl.data.labels import settled
from edgefl.data.made_up import made_up
from edgefl.data.partition import Partition
from edgefl.data.split import Split, divide
from edgefl.errors import ConfigError, Diverged
from edgefl.evaluation import counters, metrics
from edgefl.events import Done, Evaluating, Round
from edgefl.losses import Loss
from edgefl.models.agreement import check_agreement
from edgefl.models.base import Model
from edgefl.models.build import build, build_module
from edgefl.models.onnx.bundle import pack, unpack
from edgefl.models.onnx_backend import OnnxModel
from edgefl.protocol.codecs import Codec
from edgefl.run.work import pack_broadcast
from edgefl.system import blas
from edgefl.training.divergence import likely_cause, quiet, unscaled
from edgefl.vector import Array, State, Vector

TRIAL_SAMPLES = 16  # on which the networks of coordinator and devices are compared

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything about a run that stays the same."""

    run: RunFile
    algorithm: Algorithm
    stages: tuple[Stage, ...]
    model: Model  # the coordinator's own
    device_model: Model  # the same network, as devices run it
    graphs: bytes | None  # the ONNX bundle they run, unless they bring PyTorch
    start: Vector
    loss: Loss
    up: Codec  # how updates travel
    down: Codec  # how models do
    sample: tuple[int, ...]
    classes: int
    public: Dataset
    test: Dataset | None
    class_names: tuple[str, ...] | None = None
    set_aside: int = 0  # samples of task.data that are neither tested on, nor public, nor on a device

    @property
    def name(self) -> str:
        return self.run.run.name


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a job stands after `round` rounds."""

    round: int
    params: Vector
    previous: Vector | None = None
    states: Mapping[str, State] = field(default_factory=dict)
    evaluation: metrics.Evaluation | None = None
    forgetting: float | None = None
    best: float | None = None  # accuracy so far; the lowest loss, where there is no accuracy
    reached: int | None = None  # the first round that met the target
    bounded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what was taken from whom in this round

    @property
    def accuracy(self) -> float | None:
        return self.evaluation.accuracy if self.evaluation else None

    def sha256(self) -> str:
        """What two runs must share to be the same."""
        return sha256(np.ascontiguousarray(self.params, "<f4").tobytes()).hexdigest()


def prepare(run: RunFile, root: Path | None = None) -> tuple[Job, Split]:
    """The job of a run file, and the data divided as it says (no devices, where they bring their own)."""
    held = split(run, root)
    task = run.task
    shown = held.test if len(held.test) else held.public
    sample, classes = task.sample or shown.shape, shown.classes if task.class_count is None else task.class_count
    if len(held.test) and held.test.shape != sample:
        raise ConfigError(
            f"task.sample = {list(sample)}, but samples of '{task.data}' have shape {list(held.test.shape)}"
        )
    compute = run.compute
    network = task.model, sample, classes, run.run.seed
    model, start = build(*network, threads=compute.threads, device=compute.device)
    like = shown.x if len(shown) or not model.reads_tokens(sample) else np.zeros((0, *sample), np.int64)
    graphs = export_graphs(*network, like=like) if task.backend == "onnx" else None
    device_model, masked = _device_model(run, network, graphs)
    check_agreement(task.model, model, device_model, start, _trial_samples(like, classes), masked=masked)
    job = Job(
        run=run,
        algorithm=run.make_algorithm(),
        stages=run.make_stages(),
        model=model,
        device_model=model if graphs is None else device_model,
        graphs=graphs,
        start=start,
        loss=losses.loss(task.loss),
        up=run.wire.up_codec(),
        down=run.wire.down_codec(),
        sample=sample,
        classes=classes,
        public=held.public,
        test=held.test if len(held.test) else None,
        class_names=shown.class_names,
        set_aside=held.set_aside,
    )
    return job, held


def _device_model(
    run: RunFile, network: tuple[str, tuple[int, ...], int, int], graphs: bytes | None
) -> tuple[Model, bool]:
    """The network as devices make it for themselves, and whether it draws dropout masks in a way of its own."""
    compute = run.compute
    if graphs is None:
        return build(*network, threads=compute.threads, device=compute.device)[0], False
    bundle = unpack(graphs)
    return OnnxModel(bundle, threads=compute.threads), bool(bundle.masks)


def _trial_samples(like: Array, classes: int) -> Array:
    """A few samples to compare networks on, half of them real ones from all over the data, if there are enough.

    The other half is made up, and of length one: real ones may be so large that they hide a difference.
    """
    half = TRIAL_SAMPLES // 2
    artificial: Array = made_up(like.shape[1:], classes, like, seed=0, name="agreement", count=TRIAL_SAMPLES).x
    if len(like) < half:
        return artificial
    return np.concatenate([like[np.linspace(0, len(like) - 1, half).astype(int)], artificial[half:].astype(like.dtype)])


def export_graphs(network: str, sample: tuple[int, ...], classes: int, seed: int, like: Array) -> bytes:
    """The graphs that devices train from, packed; what is frozen in the network follows from the seed, as here."""
    from edgefl.models.onnx_export import export  # noqa: PLC0415 - needs torch, which waits until a job is prepared

    dtype = "int64" if like.dtype.kind in "iu" else "float32"
    return pack(export(build_module(network, sample, classes, seed), sample, dtype=dtype))


def split(run: RunFile, root: Path | None = None) -> Split:
    """The data a run can see from here."""
    task = run.task
    if task.data is None:
        none = np.zeros((0, *(task.sample or ())), np.float32), np.zeros(0, np.int64)
        nothing = Dataset(*none, task.class_count or 0, task.class_names)
        return Split((), nothing, nothing)
    with blas.one_thread():
        source = settled(load(task.data, root), task.loss, task.classes)
    if task.partition is None:  # devices bring their own data: the whole train part may serve as public data
        alone = divide(source, Partition(kind="iid", devices=1), task.public, run.run.seed)
        return Split((), alone.public, alone.test, set_aside=len(source.train) - len(alone.public))
    return divide(source, task.partition, task.public, run.run.seed)


def device_names(count: int) -> tuple[str, ...]:
    """What the devices of a divided data set are called, everywhere: their names are seeds."""
    return tuple(f"device-{i:0{max(2, len(str(count - 1)))}d}" for i in range(count))


def begin(job: Job) -> RunState:
    """Before the first round."""
    return look(job, RunState(0, job.start), before=None)


def plan(job: Job, run_state: RunState) -> State | None:
    """What the devices of the next round are told besides the model; None: nobody is needed."""
    return job.algorithm.plan(run_state.round + 1, run_state.params, run_state.states)


def broadcast(job: Job, round: int, params: Vector, extra: State) -> bytes:
    """The frame that tells every device of the job the model of a round."""
    wire = job.run.wire
    return pack_broadcast(job.name, round, params, extra, job.down, layout=job.model.layout, compress=wire.compress)


def advance(
    job: Job,
    run_state: RunState,
    updates: Mapping[str, Update],
    *,
    population: int,
    late: Mapping[str, Update] | None = None,
) -> RunState:
    """Merge one round's updates, and look at the result."""
    round = run_state.round + 1
    site = Site(job.model, job.public, seeds.stream(job.run.run.seed, round, "coordinator"), job.loss)
    known, trainable = run_state.states.get(robustness.NAME, {}), job.model.layout.trainable
    with blas.one_thread():
        within = robustness.bound(updates, late or {}, known, trainable=trainable, caps=job.run.guards.caps())
        for device, factors in within.changed.items():
            log.info("bounded round=%d device=%s %s", round, device, _factors(factors))
        params, states = merge(
            round,
            run_state.params,
            within.updates,
            stages=job.stages,
            states={**run_state.states, robustness.NAME: within.state} if within.state else run_state.states,
            site=site,
            population=population,
            late=within.late,
        )
    after = RunState(
        round, params, run_state.params, states, best=run_state.best, reached=run_state.reached, bounded=within.changed
    )
    return look(job, after, before=run_state.evaluation)


def onward(
    job: Job,
    run_state: RunState,
    updates: Mapping[str, Update],
    *,
    population: int,
    late: Mapping[str, Update] | None = None,
) -> Iterator[RunState]:
    """The state after this round is merged, and after each behind it that needs no device."""
    run_state = advance(job, run_state, updates, population=population, late=late)
    yield run_state
    while not finished(job, run_state) and plan(job, run_state) is None:
        run_state = advance(job, run_state, {}, population=population)
        yield run_state


def finished(job: Job, run_state: RunState) -> bool:
    """All rounds are done, or the target is reached."""
    return run_state.round >= job.run.run.rounds or run_state.reached is not None


def look(job: Job, run_state: RunState, before: metrics.Evaluation | None) -> RunState:
    """The state with what the test data say about its model."""
    if job.test is None:
        return run_state
    with quiet():
        now = metrics.evaluate(job.model, run_state.params, job.test, job.loss)
    if not np.isfinite(now.loss):
        cause = likely_cause(job.test, rate(job.algorithm))
        raise Diverged(
            f"coordinator, round {run_state.round}: the model's loss on the test data is not finite ({now.loss});"
            f" {cause}"
        )
    reached = run_state.reached
    if reached is None and _met(job, now):
        reached = run_state.round
    lost = None if before is None or not job.classes else metrics.forgetting(before.per_class, now.per_class)
    return RunState(
        run_state.round,
        run_state.params,
        run_state.previous,
        run_state.states,
        evaluation=now,
        forgetting=lost,
        best=_better(run_state.best, now),
        reached=reached,
        bounded=run_state.bounded,
    )


def _met(job: Job, now: metrics.Evaluation) -> bool:
    """Whether the model is as good as the run file asks."""
    accuracy, loss = job.run.run.target_accuracy, job.run.run.target_loss
    accurate = accuracy is not None and now.accuracy is not None and now.accuracy >= accuracy
    return accurate or (loss is not None and now.loss <= loss)


def _better(best: float | None, now: metrics.Evaluation) -> float:
    """The best so far: the highest accuracy, or the lowest loss of a regression."""
    if now.accuracy is None:
        return now.loss if best is None else min(best, now.loss)
    return now.accuracy if best is None else max(best, now.accuracy)


def opening(job: Job) -> Evaluating:
    """What the run will be judged by."""
    test = job.test
    return Evaluating(
        data=job.run.task.data,
        samples=0 if test is None else len(test),
        set_aside=job.set_aside,
        unscaled=None if test is None else unscaled(test),
        public=len(job.public),
        classes=job.classes,
        class_names=job.class_names,
    )


def scores(seen: metrics.Evaluation | None) -> dict[str, Any]:
    """A model's scores, by name; those that its task does not have are None."""
    errors = seen.errors if seen else None
    return {
        "accuracy": seen.accuracy if seen else None,
        "balanced_accuracy": seen.balanced_accuracy if seen else None,
        "loss": seen.loss if seen else None,
        "mae": errors.mae if errors else None,
        "rmse": errors.rmse if errors else None,
        "r2": errors.r2 if errors else None,
    }


def report(run_state: RunState, updates: Mapping[str, Update], **more: Any) -> Round:
    """One round, and the updates merged in it; `more` is what its driver counted and timed."""
    seen = run_state.evaluation
    return Round(
        run_state.round,
        **scores(seen),
        forgetting=run_state.forgetting,
        per_class=_numbers(seen.per_class) if seen else None,
        devices=len(updates),
        updates=counters.of_updates(updates),
        stages=counters.of_stages(run_state.states),
        bounded={device: dict(factors) for device, factors in run_state.bounded.items()},
        **more,
    )


def summary(job: Job, run_state: RunState, *, bytes_up: int, bytes_down: int, **more: Any) -> Done:
    """The whole run, which ends where it reaches its target; `more` is what its driver counted and timed."""
    seen, reached = run_state.evaluation, run_state.reached
    regression = seen is not None and seen.accuracy is None
    return Done(
        job.name,
        job.algorithm.name,
        run_state.round,
        **scores(seen),
        best_accuracy=run_state.best if seen and not regression else None,
        best_loss=run_state.best if regression else None,
        per_class=_numbers(seen.per_class) if seen else None,
        class_names=job.class_names,
        rounds_to_target=reached,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        bytes_to_target=None if reached is None else bytes_up + bytes_down,
        model_sha256=run_state.sha256(),
        **more,
    )


def _factors(factors: Mapping[str, float]) -> str:
    return " ".join(f"{what}*{by:.3g}" for what, by in factors.items())


def _numbers(array: Array) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(v) else round(float(v), 6) for v in array)
