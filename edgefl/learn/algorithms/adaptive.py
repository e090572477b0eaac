"""Adaptive optimisers at the coordinator (Reddi et al., 2021): the mean step is its gradient.

    m <- beta1 m + (1 - beta1) step          the step is rate m / (sqrt(v) + tau)
    v <- v + step^2                           FedAdagrad
    v <- v - (1 - beta2) step^2 sign(v - step^2)       FedYogi
    v <- beta2 v + (1 - beta2) step^2         FedAdam

m begins at zero and v at tau^2, as in the paper; there is no correction of the bias. Statistics are left alone.
"""

from dataclasses import replace
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector
from edgefl.learn.contract import STRICT, Draft, Site, Traits

Rate: TypeAlias = Annotated[float, Field(gt=0)]
Beta: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Adaptive:
    """What the three share: their step, given how v goes on."""

    rate: Rate = 0.1
    beta1: Beta = 0.9
    tau: Annotated[float, Field(gt=0)] = 1e-3

    traits = Traits(individual=False, nests=True, buffered=True, without_devices=True)

    def spread(self, v: Vector, square: Vector) -> Vector:
        """What v is after a step with these squares."""
        raise NotImplementedError

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, real = site.model.layout.trainable, draft.step.dtype.type
        step = draft.step[:k]
        m = real(self.beta1) * state.get("m", np.zeros_like(step)) + real(1 - self.beta1) * step
        v = self.spread(state.get("v", np.full_like(step, self.tau**2)), step * step)
        moved = real(self.rate) * m / (np.sqrt(v) + real(self.tau))
        return replace(draft, step=np.concatenate([moved, draft.step[k:]])), {"m": m, "v": v}
