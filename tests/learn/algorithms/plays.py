"""Plays rounds by hand: the plan, every device in turn, the merge. Keeps what a test wants to look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from toys import Linear, dataset, nothing

from edgefl.base import seeds
from edgefl.base.vector import State, Vector
from edgefl.learn.aggregation import merge
from edgefl.learn.contract import Algorithm, Site, Task, Update
from edgefl.learn.models.base import Model


@dataclass
class Play:
    """A fleet between two rounds."""

    algorithm: Algorithm
    sites: Mapping[str, Site]
    params: Vector
    round: int = 0
    server: dict[str, State] = field(default_factory=dict)
    devices: dict[str, State] = field(default_factory=dict)
    plan: State | None = None
    updates: dict[str, Update] = field(default_factory=dict)

    def rounds(self, count: int = 1, cohort: tuple[str, ...] | None = None) -> "Play":
        """Play so many rounds with the whole fleet, or with these devices only."""
        for _ in range(count):
            self.round += 1
            self.plan = self.algorithm.plan(self.round, self.params, self.server)
            asked = () if self.plan is None else cohort or tuple(self.sites)
            self.updates = {}
            for device in asked:
                task = Task(self.round, self.params, extra=dict(self.plan or {}))
                here = replace(self.sites[device], rng=seeds.stream(7, self.round, device))
                self.updates[device], self.devices[device] = self.algorithm.train(
                    task, self.devices.get(device, {}), here
                )
            first = next(iter(self.sites.values()))
            self.params, self.server = merge(
                self.round,
                self.params,
                self.updates,
                stages=self.algorithm.stages(),
                states=self.server,
                site=replace(first, data=nothing(first.data)),
                population=len(self.sites),
            )
        return self


def fleet(count: int = 3, model: Model | None = None, **kind: int) -> dict[str, Site]:
    """So many devices with different data and different numbers of samples."""
    sites = {}
    for i in range(count):
        data = dataset(samples=20 + 7 * i, seed=i, **kind)
        sites[f"pi-{i}"] = Site(model or Linear(4, data.classes), data, np.random.default_rng(i))
    return sites
