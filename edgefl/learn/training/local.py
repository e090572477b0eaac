"""Training on one site: the hyper-parameters and the walk that all device halves share."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass as parameters
from pydantic_core import ArgsKwargs

from edgefl.base.vector import State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import STRICT, Site, Stage, Task, Traits, Update
from edgefl.learn.models.rule import Rule
from edgefl.learn.training import optimisers, rates
from edgefl.learn.training.descent import descend
from edgefl.learn.training.optimisers import Move, Optimiser
from edgefl.learn.training.walking import (
    Sgd,
    Step,
    Walked,
    gradient,
    lone,
    loss_gradient,
    per_pass,
    shuffled,
    steps_asked,
    walk,
)

__all__ = [
    "LocalTraining",
    "Rule",
    "Sgd",
    "Step",
    "Walked",
    "gradient",
    "lone",
    "loss_gradient",
    "per_pass",
    "shuffled",
    "steps_asked",
    "walk",
]


@parameters(frozen=True, config=STRICT, kw_only=True)
class LocalTraining:
    """The hyper-parameters that all device halves share: `epochs` passes, or exactly `batches` mini-batches.

    `batches` wins where both are given. An algorithm whose paper counts in mini-batches has a default for them; who
    asks it for epochs, and says nothing about mini-batches, gets epochs.
    """

    lr: Annotated[float, Field(gt=0)] = 0.1
    batch: Annotated[int, Field(ge=1)] = 32
    epochs: Annotated[float, Field(gt=0)] = 1
    batches: Annotated[int, Field(ge=1)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weights: Literal["samples", "uniform", "batch"] = "samples"
    optimiser: optimisers.Named | None = None  # plain descent, unless said; where steps are not plain it may be refused
    lr_schedule: rates.Named | None = None  # the same rate in all rounds, unless said
    augment: tuple[str, ...] = ()  # task.augment of the run file: how samples are changed before each round

    plain_steps: ClassVar[bool] = True  # whether `train` takes steps of gradient descent and no others

    @model_validator(mode="before")
    @classmethod
    def _epochs_instead_of_default_batches(cls, given: Any) -> Any:  # Any: pydantic's own, from code or from a table
        table = given.kwargs if isinstance(given, ArgsKwargs) else given
        if isinstance(table, dict) and "epochs" in table and "batches" not in table:
            return {**table, "batches": None}
        return given

    @property
    def traits(self) -> Traits:
        """Its answer depends on the model it received, its own data and what it kept: on no other device."""
        return Traits(buffered=True)

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        """Devices are told the model, and nothing else."""
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """Plain descent on the site's loss; nothing is kept between rounds."""
        return self.update(task, site, self.descend(task, site)), state

    def rule(self) -> Rule | None:
        """What a plain step does, for graphs that take whole ones; None where no step of this algorithm is plain."""
        return Rule(self.lr, self.momentum, self.weight_decay) if self.plain_steps else None

    def stages(self) -> tuple[Stage, ...]:
        """The mean of what the devices did."""
        return (Mean(),)

    def descend(self, task: Task, site: Site) -> Walked:
        """Plain steps from the received model, as far as these hyper-parameters and the task's budget say."""
        if (rule := self.rule()) is None:
            raise TypeError(f"algorithm '{type(self).__name__}' has no plain steps: it says so by its rule")
        return descend(
            rule,
            task.params,
            site,
            task.budget,
            batch=self.batch,
            epochs=self.epochs,
            batches=self.batches,
            optimiser=self.optimiser,
        )

    def sgd(self, site: Site) -> Move:
        """A fresh optimiser for one round."""
        rule = Rule(self.lr, self.momentum, self.weight_decay)
        return (self.optimiser or Optimiser()).begin(site.model.layout, rule)

    def walk(self, task: Task, site: Site, step: Step) -> Walked:
        """Walk from the received model, as far as these hyper-parameters and the task's budget say."""
        return walk(task.params, step, site, task.budget, batch=self.batch, epochs=self.epochs, batches=self.batches)

    def weight(self, site: Site, walked: Walked) -> float:
        """The device's weight in the mean: its samples, one, or the samples it worked through in this round."""
        return {"samples": float(len(site.data)), "uniform": 1.0, "batch": float(walked.samples)}[self.weights]

    def update(self, task: Task, site: Site, walked: Walked, extra: State | None = None) -> Update:
        """The answer to the task: how far the walk went from the received model."""
        return Update(walked.params - task.params, self.weight(site, walked), walked.steps, extra or {})
