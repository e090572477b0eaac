"""The model and every stage's state on disk after each round: three generations, each trusted only by its hash."""

import json
import logging
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edgefl import job as jobs
from edgefl import store
from edgefl.errors import ConfigError, StoreError
from edgefl.job import Course, Job
from edgefl.vector import State

log = logging.getLogger(__name__)

GENERATIONS = 3
_STAGE = "stage/"


@dataclass(frozen=True, slots=True)
class Saved:
    """Where a job stood: its course, and what had been told of it."""

    course: Course
    reports: tuple[dict[str, Any], ...]
    bytes_up: int
    bytes_down: int


def save(folder: Path, job: Job, saved: Saved) -> Path:
    """Write where the job stands; the oldest generation goes."""
    course = saved.course
    arrays: State = {"params": course.params}
    if course.previous is not None:
        arrays["previous"] = course.previous
    for stage, state in course.states.items():
        arrays |= {f"{_STAGE}{stage}/{key}": np.asarray(value) for key, value in state.items()}
    about = {
        "round": course.round,
        "best": course.best,
        "reached": course.reached,
        "sha256": course.sha256(),
        "stages": list(course.states),
        "reports": saved.reports,
        "bytes_up": saved.bytes_up,
        "bytes_down": saved.bytes_down,
        "run": job.run.model_dump(mode="json"),
        "sample": job.sample,
        "classes": job.classes,
        "layout": [job.model.layout.names, job.model.layout.shapes, job.model.layout.buffers],
    }
    path = folder / f"checkpoint-{course.round:06d}.safetensors"
    store.save(path, arrays, about)
    for old in sorted(generations(folder))[:-GENERATIONS]:
        old.unlink()
    return path


def generations(folder: Path) -> list[Path]:
    """All checkpoints that are there, oldest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"))


def latest(folder: Path, job: Job) -> Saved | None:
    """The newest checkpoint that can be trusted; a damaged one is passed over with a warning."""
    for path in reversed(generations(folder)):
        try:
            arrays, about = store.load(path)
        except StoreError as error:
            log.warning("passed over a checkpoint: %s", error)
            continue
        return _restored(path, job, arrays, about)
    return None


def fingerprint(layout: list[Any]) -> str:
    """A short hash of names and shapes, to tell two models apart in a message."""
    return sha256(json.dumps(layout).encode()).hexdigest()[:12]


def _restored(path: Path, job: Job, arrays: State, about: dict[str, Any]) -> Saved:
    layout = job.model.layout
    here = json.loads(json.dumps([layout.names, layout.shapes, layout.buffers]))
    if about["layout"] != here:
        raise ConfigError(
            f"{path}: holds another model than task.model = '{job.run.task.model}' makes"
            f" (tensors {fingerprint(about['layout'])} there, {fingerprint(here)} here); use --fresh"
        )
    states: dict[str, State] = {stage: {} for stage in about["stages"]}
    for name, array in arrays.items():
        if name.startswith(_STAGE):
            stage, key = name.removeprefix(_STAGE).split("/", 1)
            states[stage][key] = array
    course = Course(
        about["round"],
        arrays["params"],
        arrays.get("previous"),
        states,
        best=about["best"],
        reached=about["reached"],
    )
    return Saved(jobs.look(job, course, None), tuple(about["reports"]), about["bytes_up"], about["bytes_down"])
