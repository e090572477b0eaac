"""Jobs whose rounds cost nothing but messages."""

from dataclasses import replace

import numpy as np

from edgefl.base.vector import Layout
from edgefl.job.config.evaluation import EvaluationSection
from edgefl.job.config.schema import BrokerSection, Learning, RoundRules, RunFile, RunSection, Wire
from edgefl.job.run.job import Job
from edgefl.learn.losses import LOSSES
from edgefl.ops.bench.noop import NOTHING, Blank, Noop

DEADLINE = 600.0  # seconds: a bench waits for all devices


def still_job(
    name: str, params: int, rounds: int, cohort: int, *, wire: str = "float32", devices: int | None = None
) -> Job:
    """Return a job whose devices have nothing to do; vectors travel as `wire` says. It begins with `devices`."""
    run = RunFile(
        run=RunSection(name=name, rounds=rounds),
        task=Learning(data=None, model="still", sample=NOTHING.shape, classes=NOTHING.classes, backend="torch"),
        algorithm={"name": "still"},
        rounds=RoundRules(cohort=cohort, quorum=cohort, deadline=DEADLINE, start_with=devices),
        broker=BrokerSection(fleet="bench"),
        wire=Wire(codec=wire),
    )
    model = Blank(Layout(("w",), ((params,),)))
    return Job(
        run=run,
        algorithm=Noop(),
        stages=Noop().stages(),
        model=model,
        device_model=model,
        graphs=None,
        start=np.zeros(params, np.float32),
        loss=LOSSES["cross_entropy"],
        up=run.wire.up_codec(),
        down=run.wire.down_codec(),
        sample=NOTHING.shape,
        classes=NOTHING.classes,
        public=NOTHING,
        test=None,
    )


def unjudged(job: Job, run: RunSection) -> Job:
    """Return the job under this name, with this number of rounds and no evaluation: the other sides have none either.

    A run file could not say that: a coordinator without data cannot be told to judge, so it does not.
    """
    changed = {"run": run, "evaluation": EvaluationSection(on="coordinator")}
    return replace(job, run=job.run.model_copy(update=changed))
