"""GradMA a second time: `python gradma_reference.py SEED...` plays three rounds beside ours, in float64.

The reference is plain torch after the paper and its authors' program: its own network, gradients, averages and memory,
and scipy's solver. It shares nothing with edgefl but what goes in: the division, the first model, who is asked, and the
order of the mini-batches. A line for every round has how far any number of our model is at most from the same one

    from_reference   of the reference, where this began the round with our model (its memory and momentum are its own)
    left_alone       of the reference, where it went on with its own model: what rounding grows to
    from_fedavg      of our own FedAvg
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.func import functional_call

from edgefl.base import seeds
from edgefl.base.vector import State, Vector
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.learn.aggregation import merge
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.gradma import GradMA
from edgefl.learn.contract import Algorithm, Site, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.torch_backend import TorchModel
from edgefl.learn.training.walking import shuffled

ROUNDS = 3
LR, BATCH, STEPS, BETA1, BETA2 = 0.01, 64, 5, 0.5, 0.5
FEW = 3  # rows, those of a device
DEPENDENT, ROUNDING = 1e-10, 1e-12  # of rows and vectors of length one
VARIANTS = {"fedavg": "none", "gradma-s": "server", "gradma": "full"}

Tensors = dict[str, Tensor]


def network() -> nn.Module:
    """The paper's perceptron: hidden layers of 200 and 100 with BatchNorm."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 200), nn.BatchNorm1d(200), nn.ReLU(),
        nn.Linear(200, 100), nn.BatchNorm1d(100), nn.ReLU(),
        nn.Linear(100, 10),
    ).double()  # fmt: skip


class Reference:
    """The authors' form: a projection for each tensor, sample weights, no memory of where a device last ended."""

    def __init__(self, start: Vector, variant: str) -> None:
        self.module, self.variant = network(), variant
        self.trained = [name for name, _ in self.module.named_parameters()]
        self.statistics = [name for name, b in self.module.named_buffers() if b.is_floating_point()]
        self.model = self.tensors(start)
        self.momentum: Tensors = {}
        self.memory: dict[str, Tensors] = {}

    def tensors(self, flat: Vector) -> Tensors:
        held, cut, at = self.module.state_dict(), dict[str, Tensor](), 0
        for name in (*self.trained, *self.statistics):
            size = held[name].numel()
            cut[name] = torch.tensor(flat[at : at + size], dtype=torch.float64).reshape(held[name].shape)
            at += size
        return cut

    def flat(self) -> Vector:
        return np.concatenate([self.model[name].numpy().ravel() for name in (*self.trained, *self.statistics)])

    def gradient(self, at: Tensors, x: Tensor, y: Tensor) -> tuple[Tensors, Tensors]:
        """The gradient at this model, and the statistics after this batch."""
        leaves = {name: at[name].clone().requires_grad_() for name in self.trained}
        moved = {name: at[name].clone() for name in self.statistics}
        loss = nn.functional.cross_entropy(functional_call(self.module, {**leaves, **moved}, (x,)), y)
        parts = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, parts, strict=True)), moved

    def worker(self, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensors:
        """What a device makes of the model."""
        now = before = self.model
        for x, y in batches:
            g, statistics = self.gradient(now, x, y)
            if self.variant == "full":
                earlier, first = self.gradient(before, x, y)[0], self.gradient(self.model, x, y)[0]
                way = {name: now[name] - self.model[name] for name in self.trained}
                g = {name: nearest(g[name], [earlier[name], first[name], way[name]]) for name in self.trained}
            now, before = {**{name: now[name] - LR * g[name] for name in self.trained}, **statistics}, now
        return now

    def round(self, data: Mapping[str, Sequence[tuple[Tensor, Tensor]]], samples: Mapping[str, int]) -> None:
        """A whole round with these devices."""
        ends = {device: self.worker(batches) for device, batches in data.items()}
        total = sum(samples[device] for device in ends)
        shares = {device: samples[device] / total for device in ends}
        mean = {n: torch.stack([shares[d] * end[n] for d, end in ends.items()]).sum(dim=0) for n in self.model}
        if self.variant == "none":
            self.model = mean
            return
        down = {name: self.model[name] - mean[name] for name in self.trained}
        pushed = {name: BETA1 * self.momentum[name] + down[name] for name in self.trained} if self.momentum else down
        self.memory = {device: {n: BETA2 * row for n, row in rows.items()} for device, rows in self.memory.items()}
        for device, end in ends.items():
            went = {name: self.model[name] - end[name] for name in self.trained}
            known = self.memory.get(device)
            self.memory[device] = {n: went[n] + known[n] for n in went} if known else went
        self.momentum = {n: nearest(pushed[n], [rows[n] for rows in self.memory.values()]) for n in self.trained}
        self.model = {**mean, **{name: self.model[name] - self.momentum[name] for name in self.trained}}


def nearest(p: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """The nearest y to p with <y, row> >= 0 for every row, in coordinates of the rows' own span and p."""
    m = np.array([row.numpy().ravel() for row in rows])
    lengths = np.linalg.norm(m, axis=1)
    m, flat = m[lengths > 0] / lengths[lengths > 0, None], p.numpy().ravel()
    size = np.linalg.norm(flat)
    if not len(m) or not size:
        return p
    q, r = np.linalg.qr(np.column_stack([m.T, flat / size]))
    solve = by_faces if len(m) <= FEW else by_least_squares
    return torch.from_numpy(size * (q @ solve(r[:, :-1].T, r[:, -1]))).reshape(p.shape)


def by_faces(m: Vector, p: Vector) -> Vector:
    """Few rows, which depend on each other: p in the plane across every set of rows; the nearest that opposes none."""
    best, least = np.zeros_like(p), np.inf
    for count in range(len(m) + 1):
        for some in combinations(range(len(m)), count):
            _, lengths, basis = np.linalg.svd(m[list(some)], full_matrices=False)
            basis = basis[lengths > DEPENDENT]
            y = p - basis.T @ (basis @ p)
            if (m @ y).min() >= -ROUNDING and (far := float(np.linalg.norm(y - p))) < least:
                best, least = y, far
    return best


def by_least_squares(m: Vector, p: Vector) -> Vector:
    """Many rows: y = p + M'z with the z >= 0 that makes it shortest."""
    return p + nnls(m.T, -p)[0] @ m


def batches_of(data: Dataset, seed: int, round: int, device: str) -> list[tuple[Tensor, Tensor]]:
    """The mini-batches that our device draws in this round."""
    drawn = shuffled(data, BATCH, seeds.stream(seed, round, device), lone=False)
    return [(torch.tensor(x, dtype=torch.float64), torch.tensor(y)) for x, y in islice(drawn, STEPS)]


def ours(run: RunFile, job: Job, variant: str, devices: Mapping[str, Dataset]) -> Iterator[Vector]:
    """Our model after every round, in float64: torch computes, all else is what a run file would play."""
    shared = {key: run.algorithm[key] for key in ("lr", "batch", "batches", "weights")}
    algorithm: Algorithm = FedAvg(**shared) if variant == "none" else GradMA(**{**run.algorithm, "variant": variant})
    model, params, states = TorchModel(network()), job.start.astype(np.float64), dict[str, State]()
    for round in range(1, ROUNDS + 1):
        updates = {}
        for name in seeds.sample(run.run.seed, round, devices, run.cohort):
            site = Site(model, devices[name], seeds.stream(run.run.seed, round, name), job.loss)
            updates[name] = algorithm.train(Task(round, params), {}, site)[0]
        site = Site(model, job.public, seeds.stream(run.run.seed, round), job.loss)
        params, states = merge(round, params, updates, stages=algorithm.stages(), states=states, site=site)
        yield params


def theirs(
    run: RunFile, job: Job, variant: str, devices: Mapping[str, Dataset], begin: Sequence[Vector | None]
) -> Iterator[Vector]:
    """The reference's model after every round, each begun with its own model or with the one given."""
    reference = Reference(job.start, variant)
    for round, first in enumerate(begin, 1):
        reference.model = reference.model if first is None else reference.tensors(first)
        asked = seeds.sample(run.run.seed, round, devices, run.cohort)
        drawn = {name: batches_of(devices[name], run.run.seed, round, name) for name in asked}
        reference.round(drawn, {name: len(devices[name]) for name in asked})
        yield reference.flat()


def lines(seed: int) -> Iterator[str]:
    """A line for every method and round."""
    run = load(RunFile, Path(__file__).with_name("gradma.toml"), [f"run.seed={seed}"])
    job, held = jobs.prepare(run)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    fedavg = list(ours(run, job, "none", devices))
    for method, variant in VARIANTS.items():
        mine = list(ours(run, job, variant, devices))
        others = {
            "from_reference": list(theirs(run, job, variant, devices, [None, *mine[:-1]])),
            "left_alone": list(theirs(run, job, variant, devices, [None] * ROUNDS)),
            "from_fedavg": fedavg,
        }
        for i, model in enumerate(mine):
            apart = {key: float(f"{np.abs(model - models[i]).max():.1e}") for key, models in others.items()}
            yield json.dumps({"seed": seed, "method": method, "round": i + 1, **apart})


if __name__ == "__main__":
    for word in sys.argv[1:]:
        for line in lines(int(word)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
