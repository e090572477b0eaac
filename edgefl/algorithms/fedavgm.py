"""FedAvgM: FedAvg with momentum at the coordinator (Hsu et al., 2019)."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean, Momentum
from edgefl.algorithms.base import STRICT, Site, Stage, Task, Update
from edgefl.local import LocalTraining, gradient
from edgefl.vector import State, Vector


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvgM(LocalTraining):
    """m = beta m + mean, and the step is rate times m; beta = 0 with rate = 1 is FedAvg, bit for bit."""

    name: Literal["fedavgm"] = "fedavgm"
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rate: Annotated[float, Field(gt=0)] = 1.0

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd = self.sgd(site)
        walked = self.walk(task, site, lambda w, x, y: sgd(w, gradient(site, w, x, y)))
        return self.update(task, site, walked), state

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), Momentum(beta=self.beta, rate=self.rate)
