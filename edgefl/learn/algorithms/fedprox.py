"""FedProx: FedAvg with an elastic band to the received model, and stragglers kept (Li et al., 2020)."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Layout, State
from edgefl.learn.contract import STRICT, Site, Task, Update
from edgefl.learn.privacy import Mechanism, Price, counted
from edgefl.learn.training.local import LocalTraining, Rule, Walked


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedProx(LocalTraining):
    """The local objective gets mu/2 ||w - received||^2; mu = 0 is FedAvg, bit for bit."""

    name: Literal["fedprox"] = "fedprox"
    mu: Annotated[float, Field(ge=0)] = 0.01
    privacy: Mechanism | None = None

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        walked = descend(self, self.mu, self.privacy, task, site)
        return self.update(task, site, walked), counted(state) if self.privacy else state

    def rule(self) -> Rule:
        """Plain steps with an elastic band."""
        return Rule(self.lr, self.momentum, self.weight_decay, self.mu)

    def price(self, round: int, samples: int, layout: Layout) -> Price | None:  # noqa: ARG002 - every round costs
        """What a device must count when it has computed this round's update."""
        return None if self.privacy is None else Price(self.privacy, samples, self.mu, layout)


def descend(training: LocalTraining, mu: float, privacy: Mechanism | None, task: Task, site: Site) -> Walked:
    """Down the loss plus mu/2 ||w - received||^2, made private if asked."""

    def train() -> Walked:
        return training.descend(task, site)

    return train() if privacy is None else privacy.perform(train, task.params, site, mu)
