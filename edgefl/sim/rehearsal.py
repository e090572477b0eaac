"""The rehearsal: a run's first rounds with its own numbers, before any device is asked.

It uses as many answers as the run asks for, the coordinator's own samples where it has some, free rounds, and a full
memory. What cannot work fails here, with a clear message, and not in the field: a stage whose needs are not met, a
memory smaller than the cohort, features that are too long for a proof.

It stays cheap because only two devices train, a few steps each: one that has answered before, and one that comes for
the first time. All other answers are theirs under other names; what merges them sees as many as there will be.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil, prod
from pathlib import Path

import numpy as np

from edgefl.base.errors import ConfigError, Diverged, EdgeflError
from edgefl.base.vector import Array, State
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import statistics
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import NOTHING, ModelRef, Worker, unpack_broadcast
from edgefl.learn.algorithms.gradma import Memory
from edgefl.learn.algorithms.registry import describe
from edgefl.learn.contract import Budget, Task, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.generated import made_up
from edgefl.learn.data.split import Split
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.sim import availability_trace
from edgefl.sim.engines import RUN_ID, workers
from edgefl.sim.loop import cohort_key, opened_update, previous_model

log = logging.getLogger(__name__)

TRAINED = 2  # rounds in which the two train: the second is where a state is used for the first time
ROUNDS = 12  # in which devices answer, at most; usually two
STEPS = 2  # of training, each time
LEARNING_STEPS = 8  # on real samples: unscaled ones leave the finite numbers within these
NUMBERS = 400_000_000  # in all answers of a round, at most: they are merged in about a second
FEWEST = 16  # answers that are played however large the model is
SAMPLES = 64  # of a device whose own data are not here; of large ones, a few
TESTED = 64  # samples that are evaluated
PUBLIC = 512  # samples that server stages learn from
BLOCK = 4096  # samples whose lengths are looked at in one go


def rehearse(run: RunFile, root: Path | None = None) -> Job:
    """The job, if it works."""
    availability_trace.of_run(run)  # what is wrong with it is told now
    job, held = jobs.prepare(run, root)
    (_, real), _ = chosen = trainees(job, held)
    short = shortened(run, STEPS)
    trial = replace(
        job, run=short, algorithm=short.make_algorithm(), stages=short.make_stages(),
        test=None if job.test is None else some(job.test, TESTED), public=some(job.public, PUBLIC),
    )  # fmt: skip
    veteran, newcomer = (workers(short, job.device_model, {name: data})[name] for name, data in chosen)
    try:
        if len(held.devices) or len(held.public) or len(held.test):
            _learns(job, real)
        play(trial, veteran, newcomer, scale(job, known_devices(run)))
    except Diverged as error:
        raise Diverged(f"rehearsal of '{run.run.name}' on its own data: {error}") from None
    except EdgeflError:
        raise
    except Exception as error:
        raise ConfigError(
            f"rehearsal of '{run.run.name}' failed in {job.algorithm.name} with model '{run.task.model}':"
            f" {type(error).__name__}: {error}"
        ) from error
    return job


@dataclass(frozen=True, slots=True)
class RehearsalSize:
    """How much is played."""

    fleet: tuple[str, ...]
    answers: int  # in a round, of those that are asked
    rounds: int  # in which devices answer; free ones come on top
    capped: bool  # whether a round of the run has more answers


def scale(job: Job, devices: int) -> RehearsalSize:
    """The run's own numbers, as far as they can be played in seconds; `devices` is 0 where the fleet is not known."""
    cohort, size = job.run.cohort, max(1, job.model.layout.size)
    remembered = max((stage.size for stage in job.stages if isinstance(stage, Memory)), default=0)
    population = devices or max(cohort, remembered) + 1
    answers = min(cohort, population, max(FEWEST, NUMBERS // size))
    until_full = 1 + ceil((min(remembered, population) + 1) / answers)
    affordable = until_full * answers * size <= NUMBERS
    rounds = max(TRAINED, min(ROUNDS, until_full if affordable else 0))
    return RehearsalSize(jobs.device_names(population), answers, rounds, capped=answers < min(cohort, population))


def known_devices(run: RunFile) -> int:
    """How many devices the run divides its data among; 0 where they bring their own."""
    return run.task.partition.devices if run.task.partition else 0


def play(trial: Job, veteran: Worker, newcomer: Worker, scale: RehearsalSize) -> RunState:
    """Play this number of rounds, and the free ones between and behind them."""
    run_state, state, answered = _described(trial, jobs.begin(trial), veteran, newcomer), State(), 0
    pair: tuple[Update, Update] | None = None
    while answered < scale.rounds or jobs.plan(trial, run_state) is None:
        if run_state.round == 2 * ROUNDS:  # an algorithm that never asks a device
            break
        told, updates, late = jobs.plan(trial, run_state), dict[str, Update](), dict[str, Update]()
        if told is not None:
            if pair is None or answered < TRAINED:
                pair, state = _train(trial, run_state, told, veteran, newcomer, state)
            answered += 1
            updates, late = _answers(trial, run_state.round + 1, scale, pair)
        run_state = jobs.advance(trial, run_state, updates, population=len(scale.fleet), late=late)
    return run_state


def _described(trial: Job, run_state: RunState, *devices: Worker) -> RunState:
    """What the two say of their data, if the run asks for that before its first round."""
    if jobs.purpose(trial, run_state) != "describe":
        return run_state
    asked = jobs.plan(trial, run_state) or {}
    answers = {one.device: Update(NOTHING, 1.0, 0, statistics.answer(one.data, asked)) for one in devices}
    return jobs.described(trial, run_state, answers)


def _train(  # noqa: PLR0917 - one round of a device, as in the loop
    trial: Job, run_state: RunState, told: State, veteran: Worker, newcomer: Worker, state: State
) -> tuple[tuple[Update, Update], State]:
    """The answers of both, and what the first keeps."""
    round, size = run_state.round + 1, trial.model.layout.size
    frame = jobs.broadcast(trial, round, run_state.params, told)
    params, heard = unpack_broadcast(frame, size, codec=trial.down)
    task = Task(round, params, Budget(), heard, previous_model(trial, run_state))
    model_ref = ModelRef(RUN_ID, sha256(frame).hexdigest()[:16])
    first, second = veteran.work(task, model_ref, state), newcomer.work(task, model_ref, {})
    return (opened_update(trial, first.frame), opened_update(trial, second.frame)), first.kept


def _answers(
    trial: Job, round: int, scale: RehearsalSize, pair: tuple[Update, Update]
) -> tuple[dict[str, Update], dict[str, Update]]:
    """What a round merges, and what its stages find beside it: one answer is late, if the run takes late ones."""
    candidates = [Candidate(name) for name in sorted(scale.fleet)]
    order = drawn(trial.run.make_selection(), cohort_key(trial, round), trial.run.run.seed, candidates)
    cohort = order[: scale.answers]
    updates = {device: pair[i % 2] for i, device in enumerate(cohort)}
    others = (device for device in scale.fleet if device not in updates)
    behind: Mapping[str, Update] = {} if round == 1 else dict.fromkeys([*others][:1], pair[1])
    match trial.run.rounds.late:
        case "discount":
            return {**updates, **behind}, {}
        case "memory":
            return updates, dict(behind)
        case _:
            return updates, {}


def trainees(job: Job, held: Split) -> tuple[tuple[str, Dataset], tuple[str, Dataset]]:
    """The two that train, and their data: they are chosen to make trouble, by long samples and by few."""
    if held.devices:
        named = list(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
        return max(named, key=lambda device: lengths(device[1]).max(initial=0.0)), min(named, key=lambda d: len(d[1]))
    real = held.public if len(held.public) else held.test
    count = SAMPLES if prod(job.sample) <= 4096 else 8
    if len(real):
        longest = np.argsort(-lengths(real), kind="stable")[:count]
        return ("rehearsal-1", real.take(np.sort(longest))), ("rehearsal-2", some(real, count))
    first, second = (
        (
            name,
            made_up(
                job.sample, job.classes, real.x, seed=job.run.run.seed, name=name, count=count, targets=job.targets
            ),
        )
        for name in ("rehearsal-1", "rehearsal-2")
    )
    return first, second


def lengths(data: Dataset) -> Array:
    """The Euclidean length of every sample; token numbers have none."""
    if data.x.dtype.kind != "f":
        return np.zeros(len(data))
    blocks = (data.x[i : i + BLOCK].reshape(len(data.x[i : i + BLOCK]), -1) for i in range(0, len(data), BLOCK))
    return np.concatenate([np.zeros(0), *(np.sqrt(np.square(block).sum(axis=1)) for block in blocks)])


def some(data: Dataset, count: int) -> Dataset:
    """Return this number of samples from all over the data, or all there are."""
    if len(data) <= count:
        return data
    return data.take(np.linspace(0, len(data) - 1, count).astype(int))


def _learns(job: Job, data: Dataset) -> None:
    """Some steps on real samples, more than the rounds take: learning that fails does so only after a few."""
    (worker,) = workers(shortened(job.run, LEARNING_STEPS), job.device_model, {"rehearsal": data}).values()
    first = RunState(job.run.schedule.first - 1, job.start)
    try:
        told = jobs.plan(job, _described(job, first, worker)) or {}
        worker.work(Task(1, job.start, Budget(LEARNING_STEPS), told), ModelRef(RUN_ID, "rehearsal"), {})
    except Diverged:
        raise
    except EdgeflError as error:  # whole rounds will tell: only learning is of interest here
        log.debug("learning was not looked at: %s", error)


def shortened(run: RunFile, steps: int) -> RunFile:
    """Return the run with this number of steps on devices: few are enough to see whether it works."""
    if "batches" not in describe(run.make_algorithm()):
        return run
    return run.model_copy(update={"algorithm": {**run.algorithm, "batches": steps}})
