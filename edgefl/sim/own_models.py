"""The models that simulated devices have of their own at the end of a personalised run, and the files they lie in.

A folder of a run has them in own/DEVICE.safetensors, each whole and under the tensor names of the shared model.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from edgefl.base.vector import Array, State
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import received
from edgefl.learn.contract import is_personal
from edgefl.system import store

log = logging.getLogger(__name__)

OwnModels: TypeAlias = dict[str, dict[str, Array]]  # by device, tensor by tensor
KeepOwn: TypeAlias = Callable[[OwnModels], None]

FOLDER, ENDING = "own", ".safetensors"


def own_models(job: Job, run_state: RunState, states: Callable[[str], State], devices: Iterable[str]) -> OwnModels:
    """Return each device's own model: the last shared one as devices receive it, with what the device has kept.

    There are none, and a warning says so, if all together take more than `compute.state_mb`. A model that is not finite
    is left out: what the device kept belongs to a round that diverged.
    """
    if not is_personal(job.algorithm):
        return {}
    names, layout, most = list(devices), job.model.layout, job.run.compute.state_mb
    if (megabytes := 4 * layout.size * len(names) / 2**20) > most:
        log.warning(
            "the devices' own models are not kept: all %d take %.3g MB, more than compute.state_mb = %g; raise it",
            len(names),
            megabytes,
            most,
        )
        return {}
    shared, models, astray = received(run_state.params, job.down, layout), OwnModels(), list[str]()
    for name in names:
        own = job.algorithm.own(shared, states(name), layout)
        if np.isfinite(own).all():
            models[name] = {key: array.copy() for key, array in job.model.tensors(own).items()}
        else:
            astray.append(name)
    if astray:
        log.warning("the own models of %s are not finite, and are not kept", ", ".join(astray[:5]))
    return models


def write(folder: Path, models: Mapping[str, Mapping[str, Array]], *, private: bool = True) -> None:
    """Write these models into the folder of a run, in place of those that are there."""
    for path in _files(folder):
        if path.stem not in models:
            path.unlink()
    for name, tensors in models.items():
        path = folder / FOLDER / f"{name}{ENDING}"
        store.write_atomically(path, store.sealed(tensors, {"device": name}), private=private)


def read(folder: Path) -> OwnModels:
    """Return the devices' own models in the folder of a run; nothing where there are none."""
    return {path.stem: store.load(path)[0] for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob(f"*{ENDING}"))
