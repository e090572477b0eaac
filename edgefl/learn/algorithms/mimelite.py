"""MimeLite: devices walk with the server's momentum, frozen for the round (Karimireddy et al., 2021)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean, weights
from edgefl.learn.algorithms.extras import gather
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.training.local import LocalTraining, gradient


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MimeLite(LocalTraining):
    """A local step follows (1 - beta) g + beta m; besides its model a device sends its full gradient at the old one."""

    name: Literal["mimelite"] = "mimelite"
    plain_steps: ClassVar[bool] = False
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9

    traits = Traits(one_model="devices follow statistics of gradients at the model they received")

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {"m": server.get("statistics", {}).get("m", np.zeros_like(params))}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd, k, real = self.sgd(site), site.model.layout.trainable, task.params.dtype.type
        share, push = real(1 - self.beta), real(self.beta) * task.extra["m"][:k]

        def step(w: Vector, x: Array, y: Array) -> Vector:
            g = gradient(site, w, x, y)
            return sgd(w, np.concatenate([share * g[:k] + push, g[k:]]))

        full = full_gradient(site, task.params, self.batch)
        return self.update(task, site, self.walk(task, site, step), {"gradient": full}), state

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Statistics(beta=self.beta))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Statistics:
    """The momentum m' = (1 - beta) mean gradient + beta m, from gradients at the model the round began with."""

    name: Literal["statistics"] = "statistics"
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9

    traits = Traits(
        individual=False,
        nests=True,
        one_model="it averages gradients that must be of one point",
        believes="the gradients that devices send",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        shares, real = weights(draft.updates), draft.params.dtype.type
        m = real(self.beta) * state.get("m", np.zeros_like(draft.params))
        for device, full in gather(draft, "gradient", self.name):
            m += real((1 - self.beta) * shares[device]) * full
        return draft, {"m": m}


def full_gradient(site: Site, w: Vector, batch: int) -> Vector:
    """The gradient over all of the site's data, batch by batch; zero for statistics."""
    k, out = site.model.layout.trainable, np.zeros(len(w), np.float64)
    for i in range(0, len(site.data), batch):
        x, y = site.data.x[i : i + batch], site.data.y[i : i + batch]
        out[:k] += gradient(site, w, x, y)[:k] * (len(y) / len(site.data))
    return out.astype(w.dtype)
