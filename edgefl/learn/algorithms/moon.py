"""MOON: features stay close to the global model's and leave the device's own last ones (Li et al., 2021)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.contract import STRICT, Site, Task, Traits, Update
from edgefl.learn.models.blocks import inside
from edgefl.learn.training.local import LocalTraining, Rule, Step, loss_gradient
from edgefl.learn.training.public import classified


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Moon(LocalTraining):
    """The local loss gets mu times the contrast; mu = 0 is FedAvg. Features are the input of the last linear layer."""

    name: Literal["moon"] = "moon"
    mu: Annotated[float, Field(ge=0)] = 1.0
    tau: Annotated[float, Field(gt=0)] = 0.5

    traits = Traits(buffered=True, any_optimiser=True)

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        walked = self.walk(task, site, self.contrasting(task, state, site)) if self.mu else self.descend(task, site)
        return self.update(task, site, walked), {"previous": walked.params}

    def rule(self) -> Rule | None:
        """FedAvg's steps, where there is nothing to contrast."""
        return None if self.mu else super().rule()

    def contrasting(self, task: Task, state: State, site: Site) -> Step:
        """A step on the loss and the contrast together."""
        outputs = classified(site, "algorithm 'moon'")
        sgd, model = self.sgd(site), inside(site.model, "algorithm 'moon'").featured(site.model)
        previous = state.get("previous", task.params)  # the first time: nothing of its own to leave

        def step(w: Vector, x: Array, y: Array) -> Vector:
            both, pullback = model.vjp(w, x)
            z, h = both[:, :outputs], both[:, outputs:]
            towards, away = (model.logits(v, x)[:, outputs:] for v in (task.params, previous))
            _, dh = contrast(h, towards, away, self.tau)
            dz = loss_gradient(site, z, y)
            return sgd(w, pullback(np.concatenate([dz, h.dtype.type(self.mu) * dh], axis=1)))

        return step


def contrast(h: Array, towards: Array, away: Array, tau: float) -> tuple[float, Array]:
    """-log of the softmax share of cos(h, towards)/tau against cos(h, away)/tau, batch mean, and its gradient for h."""
    near, dnear = cosine(h, towards)
    far, dfar = cosine(h, away)
    gap = (far - near) / h.dtype.type(tau)
    pull = np.exp(-np.logaddexp(h.dtype.type(0), -gap))  # the sigmoid of gap, safe for large ones
    dh = pull[:, None] * (dfar - dnear) / h.dtype.type(tau * len(h))
    return float(np.logaddexp(0, gap).mean()), np.asarray(dh)


def cosine(a: Array, b: Array) -> tuple[Array, Array]:
    """Row-wise cosine and its gradient for `a`; a row of zeros, as rectifiers make them, has neither."""
    tiny = a.dtype.type(1e-8)
    la, lb = (np.maximum(np.linalg.norm(v, axis=1, keepdims=True), tiny) for v in (a, b))
    ua, ub = a / la, b / lb
    cos = (ua * ub).sum(axis=1, keepdims=True)
    return cos[:, 0], np.where(la > tiny, (ub - cos * ua) / la, a.dtype.type(0))
