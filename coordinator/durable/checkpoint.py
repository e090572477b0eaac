"""Where a run stands, on disk after each round but the fastest: three generations, each trusted only by its hashes.

    checkpoint-000012.safetensors   the model under its own tensor names: torch's load_state_dict takes it as it is
    state-000012.safetensors        what only the run needs to go on: the model before, every stage's state, reports
    best.safetensors                the best model, as long as that is not the last one

The state is written first, and the checkpoint names its hash: a generation is there from the moment its checkpoint
is, and a model with the state of another generation is noticed. Which round was the best stands in the checkpoint. A
best model is written when a worse one is about to follow it, before that is; it goes when the last one is the best
again. So at any moment the round that the newest checkpoint calls the best is there; while it is the last, at no cost.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.events import Evaluated, as_json, from_json
from edgefl.base.report_numbers import RoundReport
from edgefl.base.scores import beside
from edgefl.base.vector import Layout, State, Vector
from edgefl.base.version import __version__
from edgefl.job.run import first_model, reporting, statistics
from edgefl.job.run import job as jobs
from edgefl.job.run.first_model import Origin, frozen_otherwise
from edgefl.job.run.job import Job, RunState
from edgefl.system import store
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

GENERATIONS = 3
BEST = "best.safetensors"
_STAGE, _UNNAMED, _PREVIOUS = "stage/", first_model.UNNAMED, "previous"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a job stood: its state, and what had been told of it."""

    run_state: RunState
    reports: tuple[RoundReport, ...]
    bytes_up: int
    bytes_down: int


def save(disk: Disk, job: Job, saved: Checkpoint, passed: Sequence[RunState] = ()) -> str:
    """Write where the job stands, and give back its file's name; the oldest generation goes.

    `passed` are the states since the one that was saved last, that one included: one of them may have been the best.
    """
    run_state = saved.run_state
    for best in passed:
        if best.round == run_state.best_round != run_state.round:
            model, unnamed = _tensors(job, best)
            disk.write(BEST, store.sealed(model | unnamed, _about(job, best, "")))
    name = f"checkpoint-{run_state.round:06d}.safetensors"
    model, state = _tensors(job, run_state)
    if run_state.previous is not None:
        state[_PREVIOUS] = run_state.previous
    for stage, arrays in run_state.states.items():
        state |= {f"{_STAGE}{stage}/{key}": np.asarray(value) for key, value in arrays.items()}
    about_state = {
        "round": run_state.round,
        "measure": run_state.measure,
        "best": run_state.best,
        "best_round": run_state.best_round,
        "judged": as_json(run_state.judged) if run_state.judged else None,
        "reached": run_state.reached,
        "stages": list(run_state.states),
        "reports": [as_json(report) for report in saved.reports],
        "bytes_up": saved.bytes_up,
        "bytes_down": saved.bytes_down,
    }
    state_file = store.sealed(state, about_state)
    disk.write(state_of(name), state_file)
    disk.write(name, store.sealed(model, _about(job, run_state, store.seal(state_file))))
    for unneeded in _unneeded(disk.names("*.safetensors"), best_is_last=run_state.best_round == run_state.round):
        disk.remove(unneeded)
    return name


def _unneeded(names: Sequence[str], *, best_is_last: bool) -> list[str]:
    """Of these files, those that no generation needs which is kept."""
    checkpoints = [name for name in names if name.startswith("checkpoint-")]
    kept = checkpoints[-GENERATIONS:]
    ours = {*checkpoints, *(name for name in names if name.startswith("state-")), *({BEST} if best_is_last else ())}
    return sorted(ours.intersection(names) - {*kept, *map(state_of, kept)})


def _tensors(job: Job, run_state: RunState) -> tuple[State, State]:
    """The model under its own names, and what of its vector has none there: buffers that its state_dict leaves out."""
    model, learnt = job.model.tensors(run_state.params), job.model.layout.layers(run_state.params)
    return model, {_UNNAMED + name: tensor for name, tensor in learnt.items() if name not in model}


def _about(job: Job, run_state: RunState, state: str) -> dict[str, Any]:
    """What a file says about the model in it; `state` is the hash of the file beside it."""
    return {
        "edgefl": __version__,
        "round": run_state.round,
        "sha256": run_state.sha256(),
        "scores": beside(reporting.scores(jobs.chosen(job, run_state))),
        "best": {"round": run_state.best_round, "score": run_state.best},
        "run": job.run.model_dump(mode="json"),
        "sample": job.sample,
        "classes": job.classes,
        "class_names": job.class_names,
        "targets": job.targets,
        "target_names": job.target_names,
        "form": job.form.described(),
        "normalise": statistics.constants(run_state.states),
        "layout": described(job.model.layout),
        "from": None if run_state.origin is None else asdict(run_state.origin),
        "state": state,
    }


def generations(disk: Disk) -> list[str]:
    """All checkpoints that are there, oldest first."""
    return disk.names("checkpoint-*.safetensors")


def best(disk: Disk) -> str:
    """The file that holds the best model of the run; raise `StoreError` if that is not known."""
    newest = generations(disk)[-1:]
    about = read(disk, newest[0])[1] if newest else {}
    best_round = about.get("best", {}).get("round")
    if best_round is None:
        raise StoreError(f"{disk.where()}: the best model is not known, because no model was evaluated")
    if best_round == about["round"]:
        return newest[0]
    if read(disk, BEST)[1]["round"] != best_round:
        raise StoreError(f"{disk.where(BEST)}: is not the model of round {best_round}, which was the best")
    return BEST


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


def latest(disk: Disk, job: Job) -> Checkpoint | None:
    """The newest checkpoint that can be trusted; a damaged one is passed over with a warning."""
    for name in reversed(generations(disk)):
        try:
            model, about = read(disk, name)
            state, about_state = _state(disk, name, about)
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
            origin=None if about["from"] is None else Origin(**about["from"]),
            judged=_judged(about_state["judged"]),
            measure=about_state["measure"],
            best=about_state["best"],
            best_round=about_state["best_round"],
            reached=about_state["reached"] if _same_target(about, job) else None,  # else it is looked at anew
        )
        told = tuple(fact for told in about_state["reports"] if isinstance(fact := from_json(told), RoundReport))
        return Checkpoint(jobs.look(job, run_state, None), told, about_state["bytes_up"], about_state["bytes_down"])
    return None


def reached(disk: Disk) -> int | None:
    """The round in which the run met its target, if that ended it."""
    for name in generations(disk)[-1:]:
        _, told = _state(disk, name, read(disk, name)[1])
        round: int | None = told["reached"]
        return round
    return None


def params(disk: Disk, name: str, model: State, about: dict[str, Any]) -> Vector:
    """The flat vector of a checkpoint's model; buffers that its state_dict leaves out are in the state beside it."""
    names, shapes, buffers = about["layout"]
    layout = Layout(tuple(names), tuple(tuple(shape) for shape in shapes), buffers)
    rest = set(names) - set(model)
    if rest and name != BEST and (disk.size(state_of(name)) or 0) > store.LARGEST_MODEL:
        raise StoreError(f"{disk.where(state_of(name))}: larger than {store.LARGEST_MODEL >> 20} MB")
    more = {one: (model if name == BEST else _state(disk, name, about)[0])[_UNNAMED + one] for one in rest}
    return layout.flatten({**model, **more})


def fingerprint(layout: list[Any]) -> str:
    """A short hash of names and shapes, to tell two models apart in a message."""
    return sha256(json.dumps(layout).encode()).hexdigest()[:12]


def _state(disk: Disk, name: str, about: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    """The state that was written with this checkpoint, and no other."""
    file = disk.where(state_of(name))
    raw = _raw(disk, state_of(name))
    arrays, told = store.opened(raw, file)
    if store.seal(raw) != about.get("state"):
        raise StoreError(f"{file}: is not the state that {name} was written with")
    return arrays, told


def _raw(disk: Disk, name: str) -> bytes:
    raw = disk.read(name)
    if raw is None:
        raise StoreError(f"{disk.where(name)}: is not there")
    return raw


def _judged(told: dict[str, Any] | None) -> Evaluated | None:
    fact = from_json(told) if told else None
    return fact if isinstance(fact, Evaluated) else None


def _stages(arrays: State, stages: list[str]) -> dict[str, State]:
    states: dict[str, State] = {stage: {} for stage in stages}
    for name, array in arrays.items():
        if name.startswith(_STAGE):
            stage, key = name.removeprefix(_STAGE).split("/", 1)
            states[stage][key] = array
    return states


def _same_target(about: dict[str, Any], job: Job) -> bool:
    """Whether the run still has the target that it had when this was written."""
    before, now = about["run"]["run"], job.run.run
    return (before.get("target_accuracy"), before.get("target_loss")) == (now.target_accuracy, now.target_loss)
