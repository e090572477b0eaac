"""FedAdam, FedYogi, FedAdagrad: adaptive optimisers at the coordinator (Reddi et al., 2021), for the mean step.

    m <- beta1 m + (1 - beta1) step          the step is rate m / (sqrt(v) + tau)
    v <- v + step^2                           FedAdagrad
    v <- v - (1 - beta2) step^2 sign(v - step^2)       FedYogi
    v <- beta2 v + (1 - beta2) step^2         FedAdam

m begins at zero and v at tau^2, as in the paper; there is no correction of the bias. Statistics are left alone.
"""

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Traits
from edgefl.learn.training.local import LocalTraining

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


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Adam(Adaptive):
    """v is a running mean of the squares."""

    name: Literal["adam"] = "adam"
    beta2: Beta = 0.99

    def spread(self, v: Vector, square: Vector) -> Vector:
        real = v.dtype.type
        return np.asarray(real(self.beta2) * v + real(1 - self.beta2) * square)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAdam(LocalTraining):
    """Local descent, the mean, and a step of Adam along it."""

    name: Literal["fedadam"] = "fedadam"
    rate: Rate = 0.1
    beta1: Beta = 0.9
    beta2: Beta = 0.99
    tau: Rate = 1e-3

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Adam(rate=self.rate, beta1=self.beta1, beta2=self.beta2, tau=self.tau)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Yogi(Adaptive):
    """v goes towards the squares by steps of their own size: it forgets more slowly than Adam's."""

    name: Literal["yogi"] = "yogi"
    beta2: Beta = 0.99

    def spread(self, v: Vector, square: Vector) -> Vector:
        return np.asarray(v - v.dtype.type(1 - self.beta2) * square * np.sign(v - square))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedYogi(LocalTraining):
    """Local descent, the mean, and a step of Yogi along it."""

    name: Literal["fedyogi"] = "fedyogi"
    rate: Rate = 0.1
    beta1: Beta = 0.9
    beta2: Beta = 0.99
    tau: Rate = 1e-3

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Yogi(rate=self.rate, beta1=self.beta1, beta2=self.beta2, tau=self.tau)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Adagrad(Adaptive):
    """v is the sum of all squares: steps only get shorter."""

    name: Literal["adagrad"] = "adagrad"
    beta1: Beta = 0.0

    def spread(self, v: Vector, square: Vector) -> Vector:
        return np.asarray(v + square)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAdagrad(LocalTraining):
    """Local descent, the mean, and a step of Adagrad along it."""

    name: Literal["fedadagrad"] = "fedadagrad"
    rate: Rate = 0.1
    beta1: Beta = 0.0
    tau: Rate = 1e-3

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Adagrad(rate=self.rate, beta1=self.beta1, tau=self.tau)
