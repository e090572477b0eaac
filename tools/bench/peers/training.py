"""The job in which devices train, and their samples."""

import numpy as np

from edgefl.job.config.schema import BrokerSection, Learning, RoundRules, RunFile, Wire
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.learn.data.dataset import Dataset
from tools.bench.peers.loads import BATCH, CLASSES, RATE, SAMPLE, SAMPLES


def samples(seed: int) -> Dataset:
    """Return generated samples for one device; training takes as long on them as on real ones of their shape."""
    rng = np.random.default_rng(seed)
    return Dataset(rng.random((SAMPLES, *SAMPLE), np.float32), rng.integers(0, CLASSES, SAMPLES), CLASSES)


def training_job(cohort: int, codec: str = "float32") -> Job:
    """FedAvg of the perceptron, one epoch a round; it needs torch."""
    run = RunFile(
        task=Learning(data=None, model="mlp", sample=SAMPLE, classes=CLASSES),
        algorithm={"name": "fedavg", "epochs": 1, "batch": BATCH, "lr": RATE},
        rounds=RoundRules(cohort=cohort, quorum=cohort),
        broker=BrokerSection(fleet="bench"),
        wire=Wire(codec=codec),
    )
    return jobs.prepare(run)[0]
