"""Ditto: beside the shared model each device trains one of its own, held near the shared one (Li et al., 2021).

The shared model is FedAvg's. The device's own, v, goes down F(v) + lam/2 ||v - w||^2, where w is the model it received.
"""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.contract import STRICT, Budget, Site, Task, Update
from edgefl.learn.training.descent import pull
from edgefl.learn.training.local import LocalTraining, gradient, walk


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Ditto(LocalTraining):
    """FedAvg, and as many steps again for the model that stays; lam = 0 leaves every device alone with its data."""

    name: Literal["ditto"] = "ditto"
    lam: Annotated[float, Field(ge=0)] = 0.1

    def own(self, params: Vector, state: State, layout: Layout) -> Vector:  # noqa: ARG002
        """The one that stays."""
        return state.get("own", params)

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        seconds = task.budget.seconds
        half = replace(task.budget, seconds=None if seconds is None else seconds / 2)
        walked = self.descend(replace(task, budget=half), site)
        sgd, k = self.sgd(site), site.model.layout.trainable

        def step(v: Vector, x: Array, y: Array) -> Vector:
            return sgd(v, gradient(site, v, x, y) + pull(self.lam, v, task.params, k))

        start = self.own(task.params, state, site.model.layout)
        mine = walk(start, step, site, Budget(), batch=self.batch, batches=walked.steps)
        return self.update(task, site, walked), {"own": mine.params}
