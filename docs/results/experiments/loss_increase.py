"""FedReg's own measure of forgetting: `python loss_increase.py SEED...` plays fedreg.toml and prints a line per seed.

As in the paper's appendix B.1: gamma = 1, and in each round both methods' devices start from the same model, that of
FedReg's own run. On the data of the devices of the round before, the loss of that model is compared with the mean loss
of the models that the devices of this round end with.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefl.base import seeds
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.contract import Algorithm, Site, Task, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.evaluation.metrics import evaluate, loss_increase


def increases(seed: int) -> dict[str, list[float]]:
    """For each method the loss increase of every round from the second on."""
    run = load(RunFile, Path(__file__).with_name("fedreg.toml"), ["algorithm.gamma=1.0", f"run.seed={seed}"])
    job, held = jobs.prepare(run)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    shared = {key: run.algorithm[key] for key in ("lr", "batch", "epochs")}
    methods: dict[str, Algorithm] = {"fedavg": FedAvg(**shared, weights="uniform"), "fedreg": job.algorithm}
    run_state, before = jobs.begin(job), tuple[str, ...]()
    growth: dict[str, list[float]] = {label: [] for label in methods}
    while not jobs.finished(job, run_state):
        asked = seeds.sample(seed, run_state.round + 1, devices, run.cohort)
        told = {
            label: {name: trained(job, method, run_state, name, devices[name]) for name in asked}
            for label, method in methods.items()
        }
        for label, updates in told.items() if before else ():
            growth[label].append(forgotten(job, run_state, list(updates.values()), [devices[name] for name in before]))
        run_state, before = jobs.advance(job, run_state, told["fedreg"], population=len(devices)), asked
    return growth


def trained(job: Job, method: Algorithm, run_state: RunState, name: str, data: Dataset) -> Update:
    """What one device makes of the model; no method here keeps anything on the device."""
    rng = seeds.stream(job.run.run.seed, run_state.round + 1, name)
    return method.train(Task(run_state.round + 1, run_state.params), {}, Site(job.device_model, data, rng, job.loss))[0]


def forgotten(job: Job, run_state: RunState, updates: Sequence[Update], past: Sequence[Dataset]) -> float:
    """The loss increase on past devices' data, from the model to the local models."""
    ends = [run_state.params + update.delta for update in updates]
    now = [evaluate(job.model, run_state.params, data, job.loss).loss for data in past]
    return loss_increase(now, [[evaluate(job.model, w, data, job.loss).loss for w in ends] for data in past])


if __name__ == "__main__":
    for word in sys.argv[1:]:
        line = {label: round(float(np.mean(values)), 3) for label, values in increases(int(word)).items()}
        sys.stdout.write(json.dumps({"seed": int(word), **line}) + "\n")
        sys.stdout.flush()
