"""FedProx: FedAvg with an elastic band to the received model, and stragglers kept (Li et al., 2020)."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean
from edgefl.algorithms.base import STRICT, Site, Stage, Task, Update
from edgefl.local import LocalTraining, gradient
from edgefl.vector import Array, State, Vector


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedProx(LocalTraining):
    """The local objective gets mu/2 ||w - received||^2; mu = 0 is FedAvg, bit for bit."""

    name: Literal["fedprox"] = "fedprox"
    mu: Annotated[float, Field(ge=0)] = 0.01

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd, trainable = self.sgd(site), site.model.layout.trainable

        def step(w: Vector, x: Array, y: Array) -> Vector:
            return sgd(w, gradient(site, w, x, y) + pull(self.mu, w, task.params, trainable))

        return self.update(task, site, self.walk(task, site, step)), state

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)


def pull(mu: float, w: Vector, anchor: Vector, trainable: int) -> Vector:
    """The gradient of mu/2 ||w - anchor||^2, zero for statistics."""
    g = np.subtract(w, anchor)
    g *= w.dtype.type(mu)
    g[trainable:] = 0
    return np.asarray(g)
