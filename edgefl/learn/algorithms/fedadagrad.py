"""FedAdagrad: Adagrad at the coordinator (Reddi et al., 2021)."""

from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.adaptive import Adaptive, Beta, Rate
from edgefl.learn.contract import STRICT, Stage
from edgefl.learn.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAdagrad(LocalTraining):
    """Local descent, the mean, and a step of Adagrad along it."""

    name: Literal["fedadagrad"] = "fedadagrad"
    rate: Rate = 0.1
    beta1: Beta = 0.0
    tau: Rate = 1e-3

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Adagrad(rate=self.rate, beta1=self.beta1, tau=self.tau)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Adagrad(Adaptive):
    """v is the sum of all squares: steps only get shorter."""

    name: Literal["adagrad"] = "adagrad"
    beta1: Beta = 0.0

    def spread(self, v: Vector, square: Vector) -> Vector:
        return np.asarray(v + square)
