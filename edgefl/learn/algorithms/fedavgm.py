"""FedAvgM: FedAvg with momentum at the coordinator (Hsu et al., 2019)."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.learn.aggregation import Mean, Momentum
from edgefl.learn.contract import STRICT, Stage
from edgefl.learn.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvgM(LocalTraining):
    """m = beta m + mean, and the step is rate times m; beta = 0 with rate = 1 is FedAvg, bit for bit."""

    name: Literal["fedavgm"] = "fedavgm"
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rate: Annotated[float, Field(gt=0)] = 1.0

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Momentum(beta=self.beta, rate=self.rate)
