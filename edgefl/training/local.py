"""Training on one site: the loop that all device halves share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass as parameters
from pydantic_core import ArgsKwargs

from edgefl.contract import STRICT, Budget, Site, Task, Update
from edgefl.data.dataset import Dataset
from edgefl.errors import RunError
from edgefl.training.divergence import check_loss, checked_step
from edgefl.vector import Array, Layout, State, Vector

Step: TypeAlias = Callable[[Vector, Array, Array], Vector]  # weights and a batch in, new weights out


@dataclass(frozen=True, slots=True)
class Walked:
    """Where a walk ended, how many steps it took and how many samples it saw."""

    params: Vector
    steps: int
    samples: int


class Sgd:
    """Stochastic gradient descent. Its momentum starts at zero with every new object, so with every round."""

    def __init__(self, layout: Layout, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.trainable = layout.trainable
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.velocity: Vector | None = None

    def __call__(self, w: Vector, g: Vector) -> Vector:
        """The weights after one step along `g`; statistics at the end of the vector move by exactly their entry."""
        k = self.trainable
        if self.weight_decay:
            g = np.concatenate([g[:k] + w.dtype.type(self.weight_decay) * w[:k], g[k:]])
        if self.momentum:
            first = self.velocity is None
            self.velocity = g[:k].copy() if first else w.dtype.type(self.momentum) * self.velocity + g[:k]
            g = np.concatenate([self.velocity, g[k:]])
        moved = g * w.dtype.type(self.lr)
        if k < len(w):
            moved[k:] = g[k:]
        return np.asarray(np.subtract(w, moved, out=moved))


def gradient(site: Site, w: Vector, x: Array, y: Array) -> Vector:
    """The gradient of the site's loss at `w` on one batch."""
    z, pullback = site.model.vjp(w, x)
    return pullback(loss_gradient(site, z, y))


def loss_gradient(site: Site, z: Array, y: Array) -> Array:
    """The gradient of the site's loss with respect to these logits, if the loss is finite."""
    loss, dz = site.loss(z, y)
    check_loss(loss)
    return dz


def per_pass(samples: int, batch: int, *, lone: bool = True) -> int:
    """Mini-batches in one pass, the short last one too; unless `lone`, not if it has one sample and is not the only."""
    rest = samples % batch
    return samples // batch + (rest > 1 or (rest == 1 and (lone or samples == 1)))


def lone(site: Site) -> bool:
    """Whether one sample can be a mini-batch: with BatchNorm it has no variance."""
    return not site.model.layout.buffers


def shuffled(data: Dataset, size: int, rng: np.random.Generator, *, lone: bool = True) -> Iterator[tuple[Array, Array]]:
    """Mini-batches without end: pass after pass over the data, each freshly shuffled."""
    if not len(data):
        raise RunError("there is nothing to train on: the data set has no sample")
    while True:
        order = rng.permutation(len(data))
        for i in range(per_pass(len(data), size, lone=lone)):
            rows = order[i * size : (i + 1) * size]
            yield data.x[rows], data.y[rows]


def steps_asked(
    samples: int, batch: int, epochs: float | None, batches: int | None, budget: Budget, *, lone: bool = True
) -> int:
    """How many steps a device should take: the run file's word, cut by its budget, never fewer than one."""
    asked = batches if batches is not None else round((epochs or 1) * per_pass(samples, batch, lone=lone))
    return max(1, asked if budget.batches is None else min(asked, budget.batches))


def walk(
    w: Vector,
    step: Step,
    site: Site,
    budget: Budget,
    *,
    batch: int,
    epochs: float | None = None,
    batches: int | None = None,
    stream: Iterator[tuple[Array, Array]] | None = None,
) -> Walked:
    """Take steps from `w` over the site's data, as many as asked and as the budget allows, at least one.

    `stream` replaces the freshly shuffled mini-batches, for a method that needs its own.
    """
    goal = steps_asked(len(site.data), batch, epochs, batches, budget, lone=lone(site))
    end = None if budget.seconds is None else site.timer() + budget.seconds
    steps = samples = 0
    for x, y in stream or shuffled(site.data, batch, site.rng, lone=lone(site)):
        w = checked_step(steps + 1, step, w, x, y)
        steps, samples = steps + 1, samples + len(y)
        site.watch(steps)
        if steps >= goal or (end is not None and site.timer() >= end):
            break
    return Walked(w, steps, samples)


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

    uses_previous: ClassVar[bool] = False
    cohort_rounds: ClassVar[int] = 1

    @model_validator(mode="before")
    @classmethod
    def _epochs_instead_of_default_batches(cls, given: Any) -> Any:  # Any: pydantic's own, from code or from a table
        table = given.kwargs if isinstance(given, ArgsKwargs) else given
        if isinstance(table, dict) and "epochs" in table and "batches" not in table:
            return {**table, "batches": None}
        return given

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        """Devices are told the model, and nothing else."""
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """Plain descent on the site's loss; nothing is kept between rounds."""
        sgd = self.sgd(site)
        walked = self.walk(task, site, lambda w, x, y: sgd(w, gradient(site, w, x, y)))
        return self.update(task, site, walked), state

    def sgd(self, site: Site) -> Sgd:
        """A fresh optimiser for one round."""
        return Sgd(site.model.layout, self.lr, self.momentum, self.weight_decay)

    def walk(self, task: Task, site: Site, step: Step) -> Walked:
        """Walk from the received model, as far as these hyper-parameters and the task's budget say."""
        return walk(task.params, step, site, task.budget, batch=self.batch, epochs=self.epochs, batches=self.batches)

    def weight(self, site: Site, walked: Walked) -> float:
        """The device's weight in the mean: its samples, one, or the samples it worked through in this round."""
        return {"samples": float(len(site.data)), "uniform": 1.0, "batch": float(walked.samples)}[self.weights]

    def update(self, task: Task, site: Site, walked: Walked, extra: State | None = None) -> Update:
        """The answer to the task: how far the walk went from the received model."""
        return Update(walked.params - task.params, self.weight(site, walked), walked.steps, extra or {})
