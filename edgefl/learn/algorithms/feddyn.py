"""FedDyn: a linear term that every device learns bends the local optima onto the global one (Acar et al., 2021).

Device i minimises F_i(w) - <h_i, w> + alpha/2 ||w - x||^2 and then lowers h_i by alpha (w_i - x).
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.training.descent import pull
from edgefl.learn.training.local import LocalTraining, gradient


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedDyn(LocalTraining):
    """FedProx with memory: the pull is to the received model, the tilt h_i remembers earlier rounds."""

    name: Literal["feddyn"] = "feddyn"
    plain_steps: ClassVar[bool] = False
    alpha: Annotated[float, Field(gt=0)] = 0.01

    traits = Traits(one_model="what a device owes the others is counted from round to round")

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd, k = self.sgd(site), site.model.layout.trainable
        h = state.get("h", np.zeros_like(task.params))

        def step(w: Vector, x: Array, y: Array) -> Vector:
            return sgd(w, gradient(site, w, x, y) - h + pull(self.alpha, w, task.params, k))

        walked = self.walk(task, site, step)
        return self.update(task, site, walked), {"h": h - pull(self.alpha, walked.params, task.params, k)}

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Dynamic(alpha=self.alpha))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Dynamic:
    """The server's h is the mean of all h_i, and the model moves on by -h / alpha; statistics are left alone."""

    name: Literal["dynamic"] = "dynamic"
    alpha: Annotated[float, Field(gt=0)] = 0.01

    traits = Traits(
        individual=False,
        one_model="what devices owe each other is summed around one model",
        believes="that every device is counted as it counts itself",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, real = site.model.layout.trainable, draft.params.dtype.type
        h = state.get("h", np.zeros_like(draft.params)).copy()
        for update in draft.updates.values():
            h[:k] -= real(self.alpha / draft.population) * update.delta[:k]
        return replace(draft, step=draft.step - h / real(self.alpha)), {"h": h}
