"""Where a run stands, on disk after each round: three generations, each trusted only by its hashes.

    checkpoint-000012.safetensors   the model under its own tensor names: torch's load_state_dict takes it as it is
    state-000012.safetensors        what only the run needs to go on: the model before, every stage's state, reports

The state is written first, and the checkpoint names its hash: a generation is there from the moment its checkpoint
is, and a model with the state of another generation is noticed.
"""

import json
import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from edgefl import __version__
from edgefl.errors import ConfigError, StoreError
from edgefl.events import Round, as_json, from_json
from edgefl.models.base import Model
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.system import store
from edgefl.system.disk import Disk
from edgefl.vector import Layout, State, Vector

log = logging.getLogger(__name__)

GENERATIONS = 3
_STAGE, _UNNAMED, _PREVIOUS = "stage/", "model/", "previous"


@dataclass(frozen=True, slots=True)
class Saved:
    """Where a job stood: its state, and what had been told of it."""

    run_state: RunState
    reports: tuple[Round, ...]
    bytes_up: int
    bytes_down: int


def save(disk: Disk, job: Job, saved: Saved) -> str:
    """Write where the job stands, and give back its file's name; the oldest generation goes."""
    run_state = saved.run_state
    name = f"checkpoint-{run_state.round:06d}.safetensors"
    model = job.model.tensors(run_state.params)
    learnt = job.model.layout.layers(run_state.params)
    state: State = {_UNNAMED + name: tensor for name, tensor in learnt.items() if name not in model}
    if run_state.previous is not None:
        state[_PREVIOUS] = run_state.previous
    for stage, arrays in run_state.states.items():
        state |= {f"{_STAGE}{stage}/{key}": np.asarray(value) for key, value in arrays.items()}
    about_state = {
        "round": run_state.round,
        "best": run_state.best,
        "reached": run_state.reached,
        "stages": list(run_state.states),
        "reports": [as_json(report) for report in saved.reports],
        "bytes_up": saved.bytes_up,
        "bytes_down": saved.bytes_down,
    }
    state_file = store.sealed(state, about_state)
    about_model = {
        "edgefl": __version__,
        "round": run_state.round,
        "sha256": run_state.sha256(),
        "scores": jobs.scores(run_state.evaluation),
        "run": job.run.model_dump(mode="json"),
        "sample": job.sample,
        "classes": job.classes,
        "class_names": job.class_names,
        "layout": described(job.model.layout),
        "state": store.seal(state_file),
    }
    disk.write(state_of(name), state_file)
    disk.write(name, store.sealed(model, about_model))
    kept = generations(disk)[-GENERATIONS:]
    for old in sorted({*generations(disk), *disk.names("state-*.safetensors")} - {*kept, *map(state_of, kept)}):
        disk.remove(old)
    return name


def generations(disk: Disk) -> list[str]:
    """All checkpoints that are there, oldest first."""
    return disk.names("checkpoint-*.safetensors")


def state_of(name: str) -> str:
    """The file beside a checkpoint that holds what the run needs to go on."""
    return name.replace("checkpoint-", "state-", 1)


def read(disk: Disk, name: str) -> tuple[State, dict[str, Any]]:
    """The arrays of a file, and what was to be known about them."""
    return store.opened(_raw(disk, name), disk.where(name))


def described(layout: Layout) -> list[Any]:
    """Names, shapes and number of statistics, as JSON has them."""
    plain: list[Any] = json.loads(json.dumps([layout.names, layout.shapes, layout.buffers]))
    return plain


def latest(disk: Disk, job: Job) -> Saved | None:
    """The newest checkpoint that can be trusted; a damaged one is passed over with a warning."""
    for name in reversed(generations(disk)):
        try:
            model, about = read(disk, name)
            state, about_state = (model, about) if _is_old(about) else _state(disk, name, about)
        except StoreError as error:
            log.warning("passed over a checkpoint: %s", error)
            continue
        if about["layout"] != (here := described(job.model.layout)):
            raise ConfigError(
                f"{disk.where(name)}: holds another model than task.model = '{job.run.task.model}' makes"
                f" (tensors {fingerprint(about['layout'])} there, {fingerprint(here)} here); use --fresh"
            )
        vector = params(disk, name, model, about)
        if changed := frozen_otherwise(model, job.model, vector):
            raise ConfigError(
                f"{disk.where(name)}: what is frozen in '{changed}' is not what task.model = '{job.run.task.model}'"
                " makes here: its code or torch has changed; go back, or use --fresh"
            )
        run_state = RunState(
            about["round"],
            vector,
            state.get(_PREVIOUS),
            _stages(state, about_state["stages"]),
            best=about_state["best"],
            reached=about_state["reached"],
        )
        told = tuple(fact for told in about_state["reports"] if isinstance(fact := from_json(told), Round))
        return Saved(jobs.look(job, run_state, None), told, about_state["bytes_up"], about_state["bytes_down"])
    return None


def params(disk: Disk, name: str, model: State, about: dict[str, Any]) -> Vector:
    """The flat vector of a checkpoint's model; buffers that its state_dict leaves out are in the state beside it."""
    if _is_old(about):
        return model["params"]
    names, shapes, buffers = about["layout"]
    layout = Layout(tuple(names), tuple(tuple(shape) for shape in shapes), buffers)
    rest = set(names) - set(model)
    more = {tensor: _state(disk, name, about)[0][_UNNAMED + tensor] for tensor in rest}
    return layout.flatten({**model, **more})


def frozen_otherwise(model: State, here: Model, vector: Vector) -> str:
    """The first tensor of a checkpoint that is not trained and not the one that the model has here; none: empty."""
    for name, tensor in here.tensors(vector).items():
        if name not in here.layout.names and name in model and not np.array_equal(tensor, model[name]):
            return name
    return ""


def fingerprint(layout: list[Any]) -> str:
    """A short hash of names and shapes, to tell two models apart in a message."""
    return sha256(json.dumps(layout).encode()).hexdigest()[:12]


def _state(disk: Disk, name: str, about: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    """The state that was written with this checkpoint, and no other."""
    file = disk.where(state_of(name))
    raw = _raw(disk, state_of(name))
    arrays, told = store.opened(raw, file)
    if store.seal(raw) != about["state"]:
        raise StoreError(f"{file}: is not the state that {name} was written with")
    return arrays, told


def _raw(disk: Disk, name: str) -> bytes:
    raw = disk.read(name)
    if raw is None:
        raise StoreError(f"{disk.where(name)}: is not there")
    return raw


def _stages(arrays: State, stages: list[str]) -> dict[str, State]:
    states: dict[str, State] = {stage: {} for stage in stages}
    for name, array in arrays.items():
        if name.startswith(_STAGE):
            stage, key = name.removeprefix(_STAGE).split("/", 1)
            states[stage][key] = array
    return states


def _is_old(about: dict[str, Any]) -> bool:
    """Version 0.1 had everything in one file, the model as one flat vector `params`."""
    return "state" not in about
