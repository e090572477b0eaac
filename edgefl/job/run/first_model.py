"""The model that a run begins with, if that is another run's: `run.from`.

What is inherited is the model alone, BatchNorm's statistics included. Rounds are counted anew, and what algorithms keep
between rounds, at the coordinator or on devices, begins empty: it belongs to the other run. It may come from

    the name or the folder of a run         its newest checkpoint
    checkpoint-000012.safetensors, best.safetensors
    any other .safetensors file, or a state dict that PyTorch saved (.pt, .pth, .bin)   under the model's tensor names
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.vector import State, Vector
from edgefl.job.config.schema import RunFile
from edgefl.job.run import statistics
from edgefl.learn.models import torch_file
from edgefl.learn.models.base import Model
from edgefl.system import store, user_files

CHECKPOINTS, STATES = "checkpoint-", "state-"
UNNAMED = "model/"  # where tensors stand that a state dict leaves out
COUNTERS = "num_batches_tracked"  # of BatchNorm: nothing depends on them


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the first model of a run came from."""

    source: str  # as the run file names it
    sha256: str  # of the model, as the end of the other run tells it
    run: str = ""  # which run made it, as far as the file says
    round: int | None = None


def inherited(
    run: RunFile, model: Model, start: Vector, *, classes: int, class_names: Sequence[str] | None
) -> tuple[Vector, Origin, State]:
    """The model that the file names, if it fits into this one; `start` is what this one would have begun with.

    With it come the mean and the scale by which its features were normalised, if they were.
    """
    path = locate(run)
    try:
        tensors, about = read_model(path)
        _same_classes(about, classes, class_names)
        params = fitted(tensors, model, start, run.task.model)
        known = _same_units(about, run.task.normalise)
    except (ConfigError, StoreError, ValueError) as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise ConfigError(f"run.from = '{run.run.from_}': {where}{error}") from None
    name = about["run"]["run"]["name"] if "run" in about else ""
    return params, Origin(str(run.run.from_), digest(params), name, about.get("round")), known


def locate(run: RunFile) -> Path:
    """The file that holds the model."""
    word = Path(str(run.run.from_))
    sibling = run.run.folder / word
    path = sibling if sibling.is_dir() else user_files.located(word)
    if path.is_dir():
        checkpoints = sorted(path.glob(f"{CHECKPOINTS}*.safetensors"))
        if not checkpoints:
            raise ConfigError(f"run.from = '{word}': {path} holds no checkpoint; has that run merged a round?")
        return checkpoints[-1]
    if not path.is_file():
        raise ConfigError(
            f"run.from = '{word}': there is no run of that name in {run.run.folder}, and no such file or folder"
        )
    return path


def fitted(tensors: State, model: Model, start: Vector, network: str) -> Vector:
    """These tensors as the model's own vector; a ValueError that names the first one that does not fit."""
    learnt, known = model.layout.layers(start), model.tensors(start)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(COUNTERS)}
    for name, here in learnt.items():
        if name not in tensors:
            if name in known:
                raise ValueError(f"lacks '{name}' of shape {list(here.shape)}, which task.model = '{network}' has")
            tensors[name] = here  # a buffer that no state dict holds
        there = tensors[name]
        if there.shape != here.shape:
            raise ValueError(
                f"'{name}' has shape {list(there.shape)} there, and {list(here.shape)} in task.model = '{network}'"
            )
        if there.dtype.kind != "f" or not np.isfinite(there).all():
            what = f"is of type {there.dtype}" if there.dtype.kind != "f" else "has numbers that are not finite"
            raise ValueError(f"'{name}' {what}")
    if unknown := [name for name in tensors if name not in learnt and name not in known]:
        raise ValueError(f"holds a tensor '{unknown[0]}', which task.model = '{network}' does not have")
    params = model.layout.flatten(tensors)
    if changed := frozen_otherwise(tensors, model, params):
        raise ValueError(
            f"what is frozen in '{changed}' is not what task.model = '{network}' makes here: use the run.seed, the code"
            " and the torch it was trained with"
        )
    return params


def frozen_otherwise(tensors: State, here: Model, params: Vector) -> str:
    """The first of these tensors that is not trained and not the one that the model has here; none: empty."""
    for name, tensor in here.tensors(params).items():
        if name not in here.layout.names and name in tensors and not np.array_equal(tensor, tensors[name]):
            return name
    return ""


def digest(params: Vector) -> str:
    """What two models must share to be the same."""
    return sha256(np.ascontiguousarray(params, "<f4").tobytes()).hexdigest()


def read_model(path: Path) -> tuple[State, dict[str, Any]]:
    """The tensors of a file, and what it says about them, if it is one of ours."""
    if path.suffix in torch_file.SUFFIXES:
        return torch_file.read(path), {}
    raw = store.read(path, store.LARGEST_MODEL)
    if not store.is_sealed(raw):
        return store.plain(raw, str(path)), {}
    tensors, about = store.opened(raw, str(path))
    if "layout" not in about:
        raise ValueError("is of a run, and is not its model; name its checkpoint-*.safetensors")
    beside = path.with_name(path.name.replace(CHECKPOINTS, STATES, 1))
    more = store.load(beside)[0] if set(about["layout"][0]) - set(tensors) and beside.exists() else {}
    unnamed = {name.removeprefix(UNNAMED): one for name, one in (tensors | more).items() if name.startswith(UNNAMED)}
    return {name: one for name, one in tensors.items() if not name.startswith(UNNAMED)} | unnamed, about


def _same_units(about: dict[str, Any], normalise: str) -> State:
    """What the model there knows of its features; a model that takes raw units goes on doing so."""
    known = statistics.read(about.get("normalise"))
    if known and normalise != "fleet":
        raise ValueError("takes features in raw units, normalised inside; set task.normalise = 'fleet' here too")
    return known


def _same_classes(about: dict[str, Any], classes: int, class_names: Sequence[str] | None) -> None:
    """Nothing, if the classes there are the classes here, as far as both are known."""
    if about.get("classes", classes) != classes:
        raise ValueError(f"tells {about['classes']} classes apart, this run has {classes}")
    names = about.get("class_names")
    if names is None or class_names is None:
        return
    for number, (there, here) in enumerate(zip(names, class_names, strict=True)):
        if there != here:
            raise ValueError(
                f"class {number} is '{there}' there, and '{here}' in this run: task.classes gives the order"
            )
