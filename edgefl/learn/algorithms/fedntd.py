"""FedNTD: the device keeps what the global model believes about the not-true classes (Lee et al., 2022)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.contract import STRICT, Site, Task, Traits, Update
from edgefl.learn.losses import log_softmax
from edgefl.learn.training.local import LocalTraining, loss_gradient
from edgefl.learn.training.public import classified


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedNTD(LocalTraining):
    """The local loss gets beta times the not-true distillation at temperature tau; beta = 0 is FedAvg."""

    name: Literal["fedntd"] = "fedntd"
    plain_steps: ClassVar[bool] = False
    beta: Annotated[float, Field(ge=0)] = 1.0
    tau: Annotated[float, Field(gt=0)] = 1.0

    traits = Traits(buffered=True, any_optimiser=True)

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        classified(site, "algorithm 'fedntd'")
        sgd = self.sgd(site)

        def step(w: Vector, x: Array, y: Array) -> Vector:
            z, pullback = site.model.vjp(w, x)
            kept = not_true(z, y, site.model.logits(task.params, x), self.tau)[1]
            return sgd(w, pullback(loss_gradient(site, z, y) + z.dtype.type(self.beta) * kept))

        return self.update(task, site, self.walk(task, site, step)), state


def not_true(z: Array, y: Array, teacher: Array, tau: float) -> tuple[float, Array]:
    """tau^2 KL(teacher || student) over all classes but the label, batch mean, and its gradient for the student `z`."""
    n, classes = z.shape
    others = np.arange(classes) != y[:, None]
    logp = log_softmax(teacher[others].reshape(n, classes - 1) / z.dtype.type(tau))
    logq = log_softmax(z[others].reshape(n, classes - 1) / z.dtype.type(tau))
    p = np.exp(logp)
    dz = np.zeros_like(z)
    dz[others] = (z.dtype.type(tau / n) * (np.exp(logq) - p)).reshape(-1)
    return tau * tau * float((p * (logp - logq)).sum(axis=1).mean()), dz
