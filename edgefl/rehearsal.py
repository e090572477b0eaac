"""The rehearsal: two rounds with two made-up devices through everything a run file names.

What cannot work (a stage whose needs are not met, a model that does not fit its data, a loss that does not fit the
labels) fails here, with a clear message, and not in the field.
"""

import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgefl import job as jobs
from edgefl.algorithms.base import Budget, Task
from edgefl.algorithms.shelf import describe
from edgefl.config import RunFile
from edgefl.data.holdings import Holdings
from edgefl.data.made_up import made_up
from edgefl.errors import ConfigError, Diverged, EdgeflError
from edgefl.job import Course, Job
from edgefl.simulation.engines import workers
from edgefl.simulation.loop import LIFE, simulate
from edgefl.work import Place

log = logging.getLogger(__name__)

ROUNDS = 2
STEPS = 8  # on real samples: unscaled ones leave the finite numbers within these


def rehearse(run: RunFile, root: Path | None = None) -> Job:
    """The job, if it works."""
    job, held = jobs.prepare(run, root)
    like = held.test if len(held.test) else held.public
    devices = {
        name: made_up(job.sample, job.classes, like.x, seed=run.run.seed, name=name) for name in jobs.device_names(2)
    }
    short = run.model_copy(
        update={
            "run": run.run.model_copy(update={"rounds": ROUNDS, "target_accuracy": None, "target_loss": None}),
            "rounds": run.rounds.model_copy(update={"cohort": 2, "quorum": 1, "start_with": 2}),
            "algorithm": {**run.algorithm, **_brief(run)},
        }
    )
    trial = replace(
        job, run=short, algorithm=short.make_algorithm(), stages=short.make_stages(), test=devices["device-00"]
    )
    try:
        simulate(trial, devices)
    except EdgeflError:
        raise
    except Exception as error:
        raise ConfigError(
            f"rehearsal of '{run.run.name}' failed in {job.algorithm.name} with model '{run.task.model}':"
            f" {type(error).__name__}: {error}"
        ) from error
    _learns(job, held)
    return job


def _learns(job: Job, held: Holdings) -> None:
    """A few steps on real samples, where there are some: made-up ones have length one, real ones may be unscaled."""
    data = next((data for data in (*held.devices[:1], held.public, held.test) if len(data)), None)
    if data is None:
        return
    long = job.run.model_copy(update={"algorithm": {**job.run.algorithm, **_brief(job.run, STEPS)}})
    (worker,) = workers(long, job.device_model, {"rehearsal": data}).values()
    told = jobs.plan(job, Course(0, job.start)) or {}
    try:
        worker.work(Task(1, job.start, Budget(STEPS), told), Place(LIFE, "rehearsal"), {})
    except Diverged as error:
        raise Diverged(f"rehearsal of '{job.name}' on its own data: {error}") from None
    except EdgeflError as error:  # it has been through two whole rounds: only learning is of interest here
        log.info("not rehearsed on real samples: %s", error)


def _brief(run: RunFile, steps: int = 2) -> dict[str, int]:
    """Few steps are enough to see whether it works."""
    return {"batches": steps} if "batches" in describe(run.make_algorithm()) else {}


def rehearse_apart(path: Path, sets: Sequence[str], root: Path | None) -> None:
    """Rehearse in a process of its own, so that a coordinator which waits for its fleet has not loaded torch."""
    command = [sys.executable, "-m", "edgefl", "rehearse", str(path), *(f"--set={word}" for word in sets)]
    if root is not None:
        command += ["--data-root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ConfigError(said[-1].removeprefix("edgefl: "))
