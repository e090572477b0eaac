"""The plain loop: the specification of a run. Every other driver must end with the same model, bit for bit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any

from edgefl import job as jobs
from edgefl import seeds
from edgefl.algorithms.base import Task, Update
from edgefl.data.dataset import Dataset
from edgefl.job import Course, Job
from edgefl.protocol.messages import TO_COORDINATOR, Answer, read
from edgefl.vector import State, Vector
from edgefl.work import Place, Worker, pack_broadcast, unpack_answer, unpack_broadcast


@dataclass(slots=True)
class Traffic:
    """Bytes of frames, as they would cross the network."""

    up: int = 0
    down: int = 0


def simulate(
    job: Job, devices: Mapping[str, Dataset], tell: Callable[[dict[str, Any]], None] = lambda _: None
) -> Course:
    """Play all rounds one after another; `tell` hears of each, and of the end."""
    workers = {name: worker(job, name, data) for name, data in devices.items()}
    states: dict[str, State] = {name: {} for name in workers}
    total, began = Traffic(), perf_counter()
    course, last_seen = jobs.begin(job), dict.fromkeys(workers, -1)
    while not jobs.finished(job, course):
        opened, spent = perf_counter(), Traffic()
        extra = jobs.plan(job, course)
        updates: dict[str, Update] = {}
        if extra is not None:
            updates = _play(job, course, extra, workers, states, last_seen, spent)
        course = jobs.advance(job, course, updates, population=len(workers))
        total.up, total.down = total.up + spent.up, total.down + spent.down
        took = perf_counter() - opened
        tell(jobs.report(course, bytes_up=spent.up, bytes_down=spent.down, seconds=took, devices=len(updates)))
    tell(jobs.summary(job, course, bytes_up=total.up, bytes_down=total.down, seconds=perf_counter() - began))
    return course


def worker(job: Job, name: str, data: Dataset) -> Worker:
    """The device half of the job."""
    run = job.run
    return Worker(
        run.run.name, name, job.algorithm, job.device_model, data, job.loss, job.codec, run.run.seed, run.wire.compress
    )


def _play(  # noqa: PLR0917 - the whole round in one place, as a specification should be
    job: Job,
    course: Course,
    extra: State,
    workers: Mapping[str, Worker],
    states: dict[str, State],
    last_seen: dict[str, int],
    spent: Traffic,
) -> dict[str, Update]:
    round, size = course.round + 1, job.model.layout.size
    frame = pack_broadcast(job.name, round, course.params, extra, job.codec, compress=job.run.wire.compress)
    place = Place("loop", sha256(frame).hexdigest()[:16])
    params, told = unpack_broadcast(frame, size)
    previous = _previous(job, course)
    updates = {}
    for name in seeds.sample(job.run.run.seed, cohort_key(job, round), workers, job.run.cohort):
        task = Task(round, params, extra=told, previous=previous)
        done = workers[name].work(task, place, states[name])
        said, opened = read(TO_COORDINATOR, done.frame, limit=len(done.frame) * 64)
        assert isinstance(said, Answer)  # noqa: S101 - we packed it ourselves
        updates[name] = unpack_answer(said, opened.body, size)
        states[name] = done.kept
        spent.up += len(done.frame)
        returned = job.algorithm.uses_previous and previous is not None and last_seen[name] != round - 1
        spent.down += len(frame) * (2 if returned else 1)
        last_seen[name] = round
    return updates


def cohort_key(job: Job, round: int) -> int:
    """The number that draws a round's cohort; rounds that share one share their devices."""
    return 1 + (round - 1) // job.algorithm.cohort_rounds


def _previous(job: Job, course: Course) -> Vector | None:
    """The model one round earlier, as devices received it."""
    if not job.algorithm.uses_previous or course.previous is None:
        return None
    return job.codec.encode(course.previous)[1]
