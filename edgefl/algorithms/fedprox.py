"""FedProx: FedAvg with an elastic band to the received model, and stragglers kept (Li et al., 2020)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean
from edgefl.contract import STRICT, Site, Stage, Task, Update
from edgefl.privacy import Mechanism, Price, counted
from edgefl.training.local import LocalTraining, Walked, gradient
from edgefl.vector import Array, Layout, State, Vector


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedProx(LocalTraining):
    """The local objective gets mu/2 ||w - received||^2; mu = 0 is FedAvg, bit for bit."""

    name: Literal["fedprox"] = "fedprox"
    mu: Annotated[float, Field(ge=0)] = 0.01
    privacy: Mechanism | None = None

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        walked = descend(self, self.mu, self.privacy, task, site)
        return self.update(task, site, walked), counted(state) if self.privacy else state

    def price(self, round: int, samples: int, layout: Layout) -> Price | None:  # noqa: ARG002 - every round costs
        """What a device must count when it has computed this round's update."""
        return None if self.privacy is None else Price(self.privacy, samples, self.mu, layout)

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)


def descend(training: LocalTraining, mu: float, privacy: Mechanism | None, task: Task, site: Site) -> Walked:
    """Down the loss plus mu/2 ||w - received||^2, made private if asked."""
    sgd, trainable = training.sgd(site), site.model.layout.trainable

    def step(w: Vector, x: Array, y: Array) -> Vector:
        return sgd(w, gradient(site, w, x, y) + pull(mu, w, task.params, trainable))

    def train() -> Walked:
        return training.walk(task, site, step)

    return train() if privacy is None else privacy.perform(train, task.params, site, mu)


def pull(mu: float, w: Vector, anchor: Vector, trainable: int) -> Vector:
    """The gradient of mu/2 ||w - anchor||^2, zero for statistics."""
    g = np.subtract(w, anchor)
    g *= w.dtype.type(mu)
    g[trainable:] = 0
    return np.asarray(g)
