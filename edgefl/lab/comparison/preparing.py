"""What the runs of a comparison share: data are made once for a seed, graphs once for all who take the same steps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.lab.comparison import shared_networks
from edgefl.learn import losses
from edgefl.learn.data.split import Split
from edgefl.learn.models.rule import StepPlan
from edgefl.learn.training.descent import step_plan
from edgefl.sim.loop import simulate
from edgefl.sim.rehearsal import shortened, some

# Nothing is made of these.
OWN = {"algorithm", "aggregation", "privacy", "rounds", "selection", "wire", "broker", "guards", "fleet", "budget"}
TRIED = 2  # rounds: Upcycled-FL does another thing in the second
TRIED_PUBLIC = 64  # samples of the public data, for stages that train on them


class Preparation:
    """The newest data, handed out again to every run that differs only in how it learns; older ones are let go.

    Devices that take other steps have other graphs, so that a run is the same here as alone.
    """

    def __init__(self, prepare: Callable[[RunFile, Path | None], tuple[Job, Split]] | None = None) -> None:
        self._prepare = prepare
        self._key: tuple[str, Path | None] | None = None
        self._held: Split | None = None
        self._jobs: dict[StepPlan | None, Job] = {}

    def __call__(self, run: RunFile, root: Path | None) -> tuple[Job, Split]:
        """What `edgefl.job.run.job.prepare` gives for this run."""
        key = _needs(run), root
        if key != self._key:
            self._key, self._held, self._jobs = key, None, {}  # two data sets at a time may be one too many
        plan = step_plan(run.make_algorithm(), losses.loss(run.task.loss))
        if self._held is None or plan not in self._jobs:
            if self._prepare:
                job, held = self._prepare(run, root)
            else:
                job, held = shared_networks.prepare(run, root, f"{key} {plan}", self._held)
            self._held = self._held or held
            self._jobs[plan] = replace(job, public=self._held.public, test=job.test and self._held.test)
        algorithm, stages = run.make_algorithm(), run.make_stages()
        return replace(
            self._jobs[plan],
            run=run,
            algorithm=algorithm,
            stages=stages,
            up=run.wire.up_codec(),
            down=run.wire.down_codec(),
        ), self._held


def _needs(run: RunFile) -> str:
    """All that data, network and graphs are made of."""
    return f"{run.run.seed} {run.model_dump_json(exclude={*OWN, 'run'})}"


def briefly(job: Job, held: Split) -> None:
    """Play two rounds of one mini-batch each, unseen: a mistake that only a merge can find is found here."""
    short = shortened(job.run, 1)
    short = short.model_copy(update={"run": short.run.model_copy(update={"rounds": TRIED})})
    algorithm, stages = short.make_algorithm(), short.make_stages()
    public = some(job.public, TRIED_PUBLIC)
    trial = replace(job, run=short, algorithm=algorithm, stages=stages, public=public, test=None)
    simulate(trial, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)))
