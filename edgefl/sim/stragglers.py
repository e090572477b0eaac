"""Stragglers as in the experiments of FedProx and Upcycled-FL: they make only a part of the epochs asked, at random."""

from math import ceil

from edgefl.base import seeds
from edgefl.job.run.job import Job
from edgefl.learn.contract import Batched
from edgefl.learn.training.local import LocalTraining


def cut(job: Job, round: int, device: str, samples: int) -> int | None:
    """How many mini-batches a straggler makes in this round; None: this device is none, and makes all.

    Of E epochs a straggler makes a whole number, uniform in 1..E-1. Where less than two epochs are asked, or
    `batches`, it makes that part of the mini-batches instead.
    """
    share = job.run.fleet.stragglers if job.run.fleet else 0.0
    if not share:
        return None
    rng = seeds.stream(job.run.run.seed, round, device, "straggler")
    if rng.random() >= share:
        return None
    training = job.algorithm if isinstance(job.algorithm, Batched) else LocalTraining()
    epochs, batches = training.epochs, training.batches
    per_epoch = -(-samples // training.batch)
    if batches is None and epochs >= 2:
        return int(rng.integers(1, int(epochs))) * per_epoch
    return int(rng.integers(1, max(2, batches or ceil(epochs * per_epoch))))
