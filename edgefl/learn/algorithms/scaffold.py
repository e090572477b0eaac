"""SCAFFOLD: control variates take the drift out of local steps (Karimireddy et al., 2020, option II).

The coordinator keeps c, each device its own c_i, all zero at the start; a local step follows g - c_i + c.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean, Scale
from edgefl.learn.algorithms.extras import gather
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.training.local import LocalTraining, gradient


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Scaffold(LocalTraining):
    """Local descent along g - c_i + c; `rate` is the server's learning rate."""

    name: Literal["scaffold"] = "scaffold"
    plain_steps: ClassVar[bool] = False
    rate: Annotated[float, Field(gt=0)] = 1.0

    traits = Traits(one_model="devices correct their drift by the mean of all control variates at one model")

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {"c": server.get("variates", {}).get("c", np.zeros_like(params))}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd, k = self.sgd(site), site.model.layout.trainable
        c, c_i = task.extra["c"], state.get("c_i", np.zeros_like(task.params))
        turn = c - c_i
        turn[k:] = 0

        def step(w: Vector, x: Array, y: Array) -> Vector:
            return sgd(w, gradient(site, w, x, y) + turn)

        walked = self.walk(task, site, step)
        dc = (task.params - walked.params) / task.params.dtype.type(gain(walked.steps, self.momentum) * self.lr) - c
        dc[k:] = 0
        return self.update(task, site, walked, {"dc": dc}), {"c_i": c_i + dc}

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Scale(factor=self.rate), Variates())


@dataclass(frozen=True, config=STRICT)
class Variates:
    """Keeps c = mean of all c_i: c moves by |S|/N times the plain mean of what the devices report."""

    name: Literal["variates"] = "variates"

    traits = Traits(
        individual=False,
        one_model="the control variate that devices correct by must be of the model they began from",
        believes="the control variates that devices send",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        c = state.get("c", np.zeros_like(draft.params)).copy()
        for _, dc in gather(draft, "dc", self.name):
            c += dc / c.dtype.type(draft.population)
        return draft, {"c": c}


def gain(steps: int, momentum: float) -> float:
    """How many gradients' worth a walk moves: its steps, or more when momentum repeats each of them."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
