"""The job in which devices train, and their samples."""

from dataclasses import replace

import numpy as np

from edgefl.bench.peers.loads import BATCH, CLASSES, RATE, SAMPLE, SAMPLES
from edgefl.config.evaluation import Evaluation
from edgefl.config.schema import Broker, Learning, RoundRules, Run, RunFile, Wire
from edgefl.data.dataset import Dataset
from edgefl.run import job as jobs
from edgefl.run.job import Job


def samples(seed: int) -> Dataset:
    """Those of one device; nobody measured them, but training takes as long on them as on real ones of their shape."""
    rng = np.random.default_rng(seed)
    return Dataset(rng.random((SAMPLES, *SAMPLE), np.float32), rng.integers(0, CLASSES, SAMPLES), CLASSES)


def training_job(cohort: int, codec: str = "float32") -> Job:
    """FedAvg of the perceptron, one epoch a round; it needs torch."""
    run = RunFile(
        task=Learning(data=None, model="mlp", sample=SAMPLE, classes=CLASSES),
        algorithm={"name": "fedavg", "epochs": 1, "batch": BATCH, "lr": RATE},
        rounds=RoundRules(cohort=cohort, quorum=cohort),
        broker=Broker(fleet="bench"),
        wire=Wire(codec=codec),
    )
    return jobs.prepare(run)[0]


def unjudged(job: Job, run: Run) -> Job:
    """The job under this name and for so many rounds, without any evaluation: the other sides do not evaluate either.

    A run file could not say that: a coordinator without data cannot be told to judge, and then nobody does.
    """
    changed = {"run": run, "evaluation": Evaluation(on="coordinator")}
    return replace(job, run=job.run.model_copy(update=changed))
