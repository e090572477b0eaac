"""pFedMe: every device's model is the proximal point of the shared one (Dinh et al., 2020).

For each mini-batch the device goes down f(theta) + lam/2 ||theta - w||^2 in `inner` steps of `own_lr`, and then moves
w by lr lam (theta - w). The coordinator goes `beta` of the way to the mean of all w. Theta is the device's own model.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.aggregation import Mean, Scale
from edgefl.learn.contract import STRICT, Site, Stage, Task, Update
from edgefl.learn.training.descent import pull
from edgefl.learn.training.local import LocalTraining, Sgd, gradient


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PFedMe(LocalTraining):
    """`lr` is the step of the shared model, `own_lr` that of the device's own; lr lam should stay below one."""

    name: Literal["pfedme"] = "pfedme"
    plain_steps: ClassVar[bool] = False
    lr: Annotated[float, Field(gt=0)] = 0.005
    weights: Literal["samples", "uniform", "batch"] = "uniform"
    lam: Annotated[float, Field(gt=0)] = 15.0
    inner: Annotated[int, Field(ge=1)] = 5
    own_lr: Annotated[float, Field(gt=0)] = 0.05
    beta: Annotated[float, Field(gt=0)] = 1.0

    def own(self, params: Vector, state: State, layout: Layout) -> Vector:  # noqa: ARG002
        """Theta, as it was last."""
        return state.get("own", params)

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:  # noqa: ARG002 - begins at w
        layout, real = site.model.layout, task.params.dtype.type
        k, theta = layout.trainable, task.params

        def step(w: Vector, x: Array, y: Array) -> Vector:
            nonlocal theta
            sgd = Sgd(layout, self.own_lr)
            for _ in range(self.inner):
                theta = sgd(theta, gradient(site, theta, x, y) + pull(self.lam, theta, w, k))
            moved = w - real(self.lr * self.lam) * (w - theta)
            return np.concatenate([moved[:k], theta[k:]])

        walked = self.walk(task, site, step)
        return self.update(task, site, walked), {"own": theta}

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),) if self.beta == 1 else (Mean(), Scale(factor=self.beta))
