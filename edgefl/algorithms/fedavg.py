"""FedAvg: local descent on every device, the mean at the coordinator (McMahan et al., 2017)."""

from collections.abc import Mapping
from typing import Literal

from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean
from edgefl.algorithms.base import STRICT, Site, Stage, Task, Update
from edgefl.local import LocalTraining, gradient
from edgefl.vector import Array, State, Vector


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvg(LocalTraining):
    """Local descent, then the mean."""

    name: Literal["fedavg"] = "fedavg"

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd = self.sgd(site)

        def step(w: Vector, x: Array, y: Array) -> Vector:
            return sgd(w, gradient(site, w, x, y))

        return self.update(task, site, self.walk(task, site, step)), state

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)
