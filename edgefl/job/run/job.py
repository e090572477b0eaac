"""A job and where it stands: what the coordinator knows and does between rounds, in every driver.

A job never changes; a run's state is a value that each round replaces. Loop, emulator and coordinator all call these.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError, Diverged
from edgefl.base.events import Evaluated
from edgefl.base.schedule import Purpose
from edgefl.base.vector import Array, State, Vector
from edgefl.job.config.schema import RunFile
from edgefl.job.run import network as networks
from edgefl.job.run import reported_loss, statistics
from edgefl.job.run.first_model import Origin, digest, inherited
from edgefl.job.run.freshness import aged
from edgefl.job.run.network import Network, NetworkShape
from edgefl.job.run.work import heard_broadcast, pack_broadcast
from edgefl.job.transforms.transform import AnswerSet, CoordinatorContext, VectorForm, at_coordinator, form_sent
from edgefl.learn import losses
from edgefl.learn.aggregation import merge
from edgefl.learn.contract import Algorithm, Fitting, Site, Stage, Update, rate, traits_of
from edgefl.learn.data.catalog import load
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import form_of, settled
from edgefl.learn.data.partition import Partition, part_names
from edgefl.learn.data.source import Source
from edgefl.learn.data.split import Split, divide, divide_to_choose
from edgefl.learn.evaluation import figures, fleet, metrics
from edgefl.learn.loss_check import check_gradient
from edgefl.learn.losses import Loss
from edgefl.learn.models import processor
from edgefl.learn.models.base import Model
from edgefl.learn.tasks.fields import width
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import formed
from edgefl.learn.training.divergence import likely_cause, quiet
from edgefl.system import blas
from edgefl.wire.codecs import Codec

Opinion: TypeAlias = metrics.Evaluation | Evaluated  # of a model: the coordinator's, or the devices'

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
    targets: int = 1  # real numbers to predict, where there are no classes
    target_names: tuple[str, ...] | None = None
    class_weights: Array | None = None  # where the run file says them
    set_aside: int = 0  # samples of task.data that are neither tested on, nor public, nor on a device
    form: Form = PLAIN  # how rows of samples, labels and outputs are read, where that is not plain

    @property
    def name(self) -> str:
        return self.run.run.name

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a sample."""
        return width(self.form.outputs) or self.classes or self.targets

    @property
    def sent(self) -> VectorForm:
        """The form of the vector in an answer, behind the run's transforms."""
        return form_sent(self.run.transforms, self.model.layout)


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a job stands after `round` rounds."""

    round: int
    params: Vector
    previous: Vector | None = None
    states: Mapping[str, State] = field(default_factory=dict)
    evaluation: metrics.Evaluation | None = None
    forgetting: float | None = None
    origin: Origin | None = None  # of the first model, if the run did not begin with a new one
    judged: Evaluated | None = None  # what devices last said: of this model, or of an earlier one
    measure: str | None = None  # what models of this task are judged by (figures.judged_by), once one was
    best: float | None = None  # of that, so far
    best_round: int | None = None  # whose model had it first
    reached: int | None = None  # the first round that met the target
    bounded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what was taken from whom in this round

    @property
    def accuracy(self) -> float | None:
        return self.evaluation.accuracy if self.evaluation else None

    def sha256(self) -> str:
        """What two runs must share to be the same."""
        return digest(self.params)


Watch: TypeAlias = Callable[[RunState], None]  # shown every state of a run, before its facts are told


def unwatched(_: RunState) -> None:
    """Ignore the states of the run: the default."""


def prepare(
    run: RunFile, root: Path | None = None, network: Network | None = None, held: Split | None = None
) -> tuple[Job, Split]:
    """The job of a run file, and the data divided as it says (no devices, where they bring their own).

    A caller that has the network saves the time and the memory that torch takes; one that has the data, their reading.
    """
    held = held or split(run, root)
    task, shown, shape = run.task, _shown(held), _shape(run, held)
    network, algorithm = network or networks.make(run, shape), run.make_algorithm()
    job = Job(
        run=run,
        algorithm=algorithm,
        stages=run.make_stages(),
        model=(model := networks.serve(run, shape, network)),
        device_model=model if network.graphs is None else networks.train(run, shape, network),
        graphs=network.graphs,
        start=network.start,
        loss=_checked_loss(run, shape, held),
        up=run.wire.up_codec(),
        down=run.wire.down_codec(),
        sample=shape.sample,
        classes=shape.classes,
        public=held.public,
        test=held.test if len(held.test) else None,
        class_names=shown.class_names,
        targets=shape.targets,
        target_names=task.target_names or shown.target_names,
        class_weights=statistics.class_weights(task, shape.classes, shown.class_names),
        set_aside=held.set_aside,
        form=shape.form,
    )
    if isinstance(algorithm, Fitting):
        algorithm.fits(model.layout)
    return job, held


def _checked_loss(run: RunFile, shape: NetworkShape, held: Split) -> Loss:
    """The loss on rows of outputs; one of the user's must give the gradient of what it says."""
    loss = shape.form.loss(losses.loss(run.task.loss))
    check_gradient(run.task.loss, loss, _shown(held).y, shape.outputs, shape.form.outputs)
    return loss


def make_network(run: RunFile, root: Path | None = None) -> Network:
    """The run's network alone, made here and now."""
    return networks.make(run, _shape(run, split(run, root)))


def _shape(run: RunFile, held: Split) -> NetworkShape:
    """What the network takes and gives, if the run file and the data agree."""
    task, shown = run.task, _shown(held)
    form, sample = shown.form, task.sample or shown.shape
    classes = shown.classes if task.class_count is None or form.kind else task.class_count
    if task.normalise == "fleet" and form.inputs:
        raise ConfigError("task.normalise = 'fleet' is for samples of one array, and these have several; leave it out")
    if task.normalise == "fleet" and shown.x.dtype.kind in "iu":
        raise ConfigError(f"task.normalise = 'fleet': samples of '{task.data}' are token numbers, which have no mean")
    if len(held.test) and held.test.shape != sample:
        raise ConfigError(
            f"task.sample = {list(sample)}, but samples of '{task.data}' have shape {list(held.test.shape)}"
        )
    return NetworkShape(sample, classes, task.target_count or shown.targets, shown.x, form)


def _shown(held: Split) -> Dataset:
    """The samples that tell what all others look like."""
    return held.test if len(held.test) else held.public


def split(run: RunFile, root: Path | None = None) -> Split:
    """The data a run can see from here."""
    task = run.task
    if task.data is None:
        none = np.zeros((0, *(task.sample or ())), np.float32), np.zeros(0, np.int64)
        nothing = Dataset(*none, task.class_count or 0, task.class_names, target_names=task.target_names)
        return Split((), nothing, nothing)
    with blas.one_thread():
        source = load(task.data, root, run.data)
        form = form_of(source, task.named_kind, task.class_count, task.outputs)
        if not form.kind:
            source = settled(source, task.loss, task.classes, task.targets)
    return _formed(_divided(run, source), form, f"data set '{source.name}'")


def _formed(held: Split, form: Form, where: str) -> Split:
    """The same parts, as the task needs them: they are divided by the labels that the data came with, as on devices."""
    devices = tuple(formed(part, form, where) for part in held.devices)
    return Split(devices, formed(held.public, form, where), formed(held.test, form, where), held.set_aside)


def _divided(run: RunFile, source: Source) -> Split:
    task = run.task
    if task.partition is None and run.evaluation.validation is not None:
        raise ConfigError("evaluation.validation is for simulations, which divide one data set: give task.partition")
    if task.partition is None:  # devices bring their own data: the whole train part may serve as public data
        alone = divide(source, Partition(kind="iid", devices=1), task.public, run.run.seed)
        return Split((), alone.public, alone.test, set_aside=len(source.train) - len(alone.public))
    if (validation := run.evaluation.cut(run.judge)) is not None:
        names = device_names(task.partition.devices)
        part = task.partition, task.public, run.run.seed
        return divide_to_choose(source, *part, validation=validation, names=names)
    return divide(source, task.partition, task.public, run.run.seed)


def device_names(count: int) -> tuple[str, ...]:
    """What the devices of a divided data set are called, everywhere."""
    return part_names(count)


def begin(job: Job) -> RunState:
    """Before the first round: with a new model, or with the one that the run file names."""
    start, origin, states = job.start, None, dict[str, State]()
    if job.run.run.from_ is not None:
        names = job.class_names
        start, origin, known = inherited(job.run, job.model, start, classes=job.classes, class_names=names)
        states = {statistics.NAME: known} if known else {}
    first = job.run.schedule.first
    return look(job, RunState(first - 1, start, states=states, origin=origin), before=None)


def in_force(job: Job, run_state: RunState) -> Job:
    """The job with what is known of the fleet's data: its models take raw units, its loss weighs classes."""
    told = statistics.told(run_state.states, job.class_weights)
    if not told:
        return job
    _, model, loss = statistics.applied(told, job.model, job.loss)
    return replace(job, model=model, device_model=statistics.applied(told, job.device_model, job.loss)[1], loss=loss)


def plan(job: Job, run_state: RunState) -> State | None:
    """Return what the devices of the next round are told besides the model; None: no device is needed."""
    if purpose(job, run_state) == "describe":
        return statistics.asked(job.run.task)
    told = statistics.told(run_state.states, job.class_weights)
    if purpose(job, run_state) == "evaluate":
        return told
    plan = training_plan(job, run_state)
    return None if plan is None else {**plan, **told, **reported_loss.asked(job.run.loss_asked)}


def training_plan(job: Job, run_state: RunState) -> State | None:
    """What the algorithm itself tells the devices of the next round that trains."""
    stages = {name: state for name, state in run_state.states.items() if name != statistics.NAME}
    return job.algorithm.plan(max(1, run_state.round + 1), run_state.params, stages)


def purpose(job: Job, run_state: RunState) -> Purpose:
    """What the next round is for."""
    return job.run.schedule.purpose(run_state.round + 1)


def evaluates(job: Job, run_state: RunState) -> bool:
    """Whether the devices of the next round evaluate the model that they receive."""
    due = run_state.round % job.run.evaluation.every == 0 or purpose(job, run_state) == "evaluate"
    return job.run.judged_by_devices and due and purpose(job, run_state) != "describe"


def broadcast(job: Job, round: int, params: Vector, extra: State) -> bytes:
    """The frame that tells every device of the job the model of a round."""
    wire = job.run.wire
    return pack_broadcast(job.name, round, params, extra, job.down, layout=job.model.layout, compress=wire.compress)


def heard(job: Job, round: int, params: Vector, extra: State) -> tuple[Vector, State, int]:
    """Return what devices have of that frame, and its bytes, where it is not sent."""
    layout, compress = job.model.layout, job.run.wire.compress
    return heard_broadcast(job.name, round, params, extra, job.down, layout, compress=compress)


def advance(
    job: Job,
    run_state: RunState,
    updates: Mapping[str, Update],
    *,
    population: int,
    late: Mapping[str, Update] | None = None,
    ages: Mapping[str, int] | None = None,
) -> RunState:
    """Merge one round's updates, which may have begun from older models, and evaluate the result."""
    if purpose(job, run_state) == "describe":
        return described(job, run_state, updates)
    round, now = run_state.round + 1, in_force(job, run_state)
    site = Site(now.model, job.public, seeds.stream(job.run.run.seed, round, "coordinator"), now.loss)
    site = replace(site, products=processor.products(job.run.compute.device))
    context = CoordinatorContext(round, job.model.layout)
    with blas.one_thread():
        answers = at_coordinator(job.run.transforms, AnswerSet(updates, late or {}, run_state.states), context)
        for device, factors in answers.bounded.items():
            log.info("bounded round=%d device=%s %s", round, device, _factors(factors))
        old = {device: age for device, age in (ages or {}).items() if age}
        aware = bool(old) and any(traits_of(stage).history is not None for stage in job.stages)
        merged, shrink = aged(answers.updates, {} if aware else old)
        params, states = merge(
            round,
            run_state.params,
            merged,
            stages=job.stages,
            states=answers.states,
            site=site,
            population=population,
            late=answers.late,
            ages=ages,
            shrink=shrink,
        )
    after = replace(
        run_state,
        round=round,
        params=params,
        previous=run_state.params,
        states=states,
        evaluation=None,
        forgetting=None,
        bounded=answers.bounded,
    )
    return look(job, after, before=run_state.evaluation)


def described(job: Job, run_state: RunState, answers: Mapping[str, Update]) -> RunState:
    """The state before the first round that trains, with what devices said of their data.

    What a model was inherited with stays: it has learnt from features that were normalised so.
    """
    guards, before = job.run.guards, run_state.states.get(statistics.NAME, {})
    majority = guards.trust == "majority"
    told = statistics.merged(answers, job.sample, cap=guards.caps().weight, majority=majority)
    states = {**run_state.states, statistics.NAME: {**told, **before}}
    return look(job, replace(run_state, round=run_state.round + 1, states=states), before=None)


def onward(
    job: Job,
    run_state: RunState,
    updates: Mapping[str, Update],
    *,
    population: int,
    late: Mapping[str, Update] | None = None,
    ages: Mapping[str, int] | None = None,
) -> Iterator[RunState]:
    """The state after this round is merged, and after each behind it that needs no device.

    There is none where the run ends with the model that the round was asked about.
    """
    if finished(job, run_state):
        return
    run_state = advance(job, run_state, updates, population=population, late=late, ages=ages)
    yield run_state
    while not finished(job, run_state) and plan(job, run_state) is None:
        run_state = advance(job, run_state, {}, population=population)
        yield run_state


def finished(job: Job, run_state: RunState) -> bool:
    """All rounds are done and the last model is judged, or it is good enough, or it gets no better."""
    if run_state.reached is not None or stale(job, run_state):
        return True
    looked = not job.run.judged_by_devices or (run_state.judged and run_state.judged.round >= run_state.round)
    return run_state.round >= job.run.run.rounds and bool(looked)


def judged(job: Job, run_state: RunState, answers: Mapping[str, Update]) -> RunState:
    """The state with what the devices of the next round saw of its model, before they trained from it."""
    if not evaluates(job, run_state) or (run_state.judged and run_state.judged.round == run_state.round):
        return run_state
    run, seen = job.run, {device: update.seen for device, update in answers.items() if update.seen}
    told = fleet.evaluated(
        seen,
        classes=job.classes,
        form=job.form,
        cap=run.guards.caps().weight,
        per_device=run.evaluation.per_device,
        speaks_for={device: answers[device].devices for device in seen},
    )
    before, now = run_state.judged, told.get("per_class")
    lost = metrics.forgetting(_array(before.per_class), _array(now)) if before and before.per_class and now else None
    silent = len(answers) - len(seen)
    after = replace(run_state, judged=Evaluated(run_state.round, **told, forgetting=lost, silent=silent))
    return _scored(job, after, chosen(job, after))


def chosen(job: Job, run_state: RunState) -> Opinion | None:
    """Return the figures of this model that decide when the run ends, and which model is its best.

    Where both evaluate that is the coordinator: it knows at once, and its test data are its own.
    """
    if job.run.judge != "devices":
        return run_state.evaluation
    last = run_state.judged
    return last if last and last.round == run_state.round and last.scores else None


def look(job: Job, run_state: RunState, before: metrics.Evaluation | None) -> RunState:
    """The state with what the test data say about its model, if it is one of those that are looked at."""
    due = run_state.round % job.run.evaluation.every == 0 or run_state.round >= job.run.run.rounds
    return look_now(job, run_state, before) if due else run_state


def look_now(job: Job, run_state: RunState, before: metrics.Evaluation | None) -> RunState:
    """The state with what the test data say about its model."""
    if job.test is None or job.run.judge == "devices" or run_state.round < 0:  # nothing is known of the features yet
        return run_state
    here = in_force(job, run_state)
    with quiet():
        now = metrics.evaluate(here.model, run_state.params, job.test, here.loss)
    if now.loss is not None and not np.isfinite(now.loss):
        cause = likely_cause(job.test, rate(job.algorithm))
        raise Diverged(
            f"coordinator, round {run_state.round}: the model's loss on the test data is not finite ({now.loss});"
            f" {cause}"
        )
    lost = None if before is None or not job.classes else metrics.forgetting(before.per_class, now.per_class)
    return _scored(job, replace(run_state, evaluation=now, forgetting=lost), now)


def _scored(job: Job, run_state: RunState, now: Opinion | None) -> RunState:
    """The state, knowing whether its model is the best so far, and whether it is as good as the run file asks."""
    if now is None or not now.scores:
        return run_state
    best, best_round, reached = run_state.best, run_state.best_round, run_state.reached
    measure = figures.judged_by(now.scores)
    value = now.scores[measure]
    if value is None:  # nothing can be said of this model: an AUROC without anything that is wrong
        pass
    elif best is None or figures.better(measure, value, best):
        best, best_round = value, run_state.round
    elif best_round is None and value == best:  # of a checkpoint that did not say whose it is
        best_round = run_state.round
    accuracy, loss = job.run.run.target_accuracy, job.run.run.target_loss
    accurate = accuracy is not None and now.accuracy is not None and now.accuracy >= accuracy
    good = accurate or (loss is not None and now.loss is not None and now.loss <= loss)
    if reached is None and run_state.round and good:  # a run has one round at least
        reached = run_state.round
    return replace(run_state, measure=measure, best=best, best_round=best_round, reached=reached)


def stale(job: Job, run_state: RunState) -> bool:
    """Whether no model has been better for as many rounds as the run file has patience."""
    patience, best = job.run.evaluation.patience, run_state.best_round
    looked = run_state.evaluation is not None
    by_coordinator = run_state.round if looked else None
    by_devices = run_state.judged.round if run_state.judged else None
    now = by_devices if job.run.judge == "devices" else by_coordinator
    return patience is not None and best is not None and now is not None and now - best >= patience


def _factors(factors: Mapping[str, float]) -> str:
    return " ".join(f"{what}*{by:.3g}" for what, by in factors.items())


def _array(shares: Sequence[float | None]) -> Array:
    return np.array([np.nan if share is None else share for share in shares])
