"""FedYogi: Yogi at the coordinator (Reddi et al., 2021)."""

from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.adaptive import Adaptive, Beta, Rate
from edgefl.learn.contract import STRICT, Stage
from edgefl.learn.training.local import LocalTraining


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
class Yogi(Adaptive):
    """v goes towards the squares by steps of their own size: it forgets more slowly than Adam's."""

    name: Literal["yogi"] = "yogi"
    beta2: Beta = 0.99

    def spread(self, v: Vector, square: Vector) -> Vector:
        return np.asarray(v - v.dtype.type(1 - self.beta2) * square * np.sign(v - square))
