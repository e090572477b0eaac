"""Upcycled-FL: every second round is free, a push along the last step (Yin et al., 2024).

Rounds come in pairs m = 1, 2, ... An odd round is a FedProx round; the even one after it moves the model once more
in the same direction, by kappa_m = mu / (mu + lambda_m) of the way, and touches no data:

    server   x <- x + kappa_m (x - x_previous)              at the coordinator: no message, no device
    device   w_i <- w_i + kappa_m (x - x_previous)          on each device of the odd round, then the mean

Both give the same model when the same devices answer in both halves.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Layout, State, Vector
from edgefl.learn.aggregation import Mean, mean
from edgefl.learn.algorithms.fedprox import descend
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.privacy import Mechanism, Price, counted
from edgefl.learn.training.local import LocalTraining, Rule, Walked

Schedule: TypeAlias = Literal["constant", "sqrt"]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Upcycled(LocalTraining):
    """FedProx in odd rounds, a free push in even ones; kappa = 0 is FedProx with idle even rounds."""

    name: Literal["upcycled"] = "upcycled"
    lr: Annotated[float, Field(gt=0)] = 0.05
    epochs: Annotated[float, Field(gt=0)] = 20
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    mu: Annotated[float, Field(gt=0)] = 0.1
    lam: Annotated[float, Field(ge=0)] = 0.04
    kappa: Annotated[float, Field(ge=0, le=1)] | None = None  # the push itself, instead of mu / (mu + lam)
    schedule: Schedule = "constant"
    even: Literal["server", "device"] = "server"
    privacy: Mechanism | None = None

    @property
    def traits(self) -> Traits:
        """Both halves of a pair of rounds have the same devices; with `even = "server"` the second asks none."""
        return Traits(
            one_model="both halves of a pair of rounds belong to the same devices",
            cohort_rounds=2,
            free_rounds=self.even == "server",
        )

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return None if self.even == "server" and is_even(round) else {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        return self.push(task, state, site) if is_even(task.round) else self.odd(task, state, site)

    def odd(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The odd half: FedProx, made private if asked; the state counts it, because it used the data."""
        walked = descend(self, self.mu, self.privacy, task, site)
        update = self.update(task, site, walked)
        kept = counted(state)
        if self.even == "device":
            kept |= {
                "round": np.array(task.round, np.int64),
                "local": walked.params,
                "previous": task.params.copy(),
                "weight": np.array(update.weight, np.float64),
            }
        return update, kept

    def rule(self) -> Rule:
        """Plain steps with an elastic band."""
        return Rule(self.lr, self.momentum, self.weight_decay, self.mu)

    def price(self, round: int, samples: int, layout: Layout) -> Price | None:
        """What a device must count when it has computed this round's update; None where no data were touched."""
        return None if self.privacy is None or is_even(round) else Price(self.privacy, samples, self.mu, layout)

    def push(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The even half on the device: no data. Without an odd model of this pair it stays where the mean is."""
        after = {key: value for key, value in state.items() if key == "odd_updates"}
        if int(state.get("round", 0)) != task.round - 1:
            idle = Walked(task.params, steps=0, samples=len(site.data))
            return self.update(task, site, idle), after
        k, w = site.model.layout.trainable, state["local"].copy()
        w[:k] = even_step(w[:k], task.params[:k], state["previous"][:k], self.pushes().at(task.round))
        return Update(w - task.params, float(state["weight"]), 0), after

    def stages(self) -> tuple[Stage, ...]:
        return (self.pushes(),) if self.even == "server" else (Mean(),)

    def pushes(self) -> "Upcycle":
        """The stage with this algorithm's kappa."""
        first = kappa(self.mu, self.lam) if self.kappa is None else self.kappa
        return Upcycle(kappa=first, schedule=self.schedule)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Upcycle:
    """Takes the place of `mean`: the mean in odd rounds, the push along the last step in even ones."""

    name: Literal["upcycle"] = "upcycle"
    kappa: Annotated[float, Field(ge=0, le=1)] = 0.7
    schedule: Schedule = "constant"

    traits = Traits(
        individual=False,
        nests=True,
        one_model="its free step repeats the one before it, which must be of the same devices",
        without_devices=True,
        makes_free_rounds=True,
        makes_step=True,
    )

    def at(self, round: int) -> float:
        """The kappa of the pair that this round belongs to."""
        pair = (round + 1) // 2
        return self.kappa / sqrt(pair) if self.schedule == "sqrt" else self.kappa

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        if not is_even(draft.round):
            odd = {"previous": draft.params.copy(), "round": np.array(draft.round, np.int64)}
            return replace(draft, step=mean(draft.updates)), odd
        step = np.zeros_like(draft.params)
        if int(state.get("round", 0)) == draft.round - 1:  # else the odd half never ended: nothing to follow
            k = site.model.layout.trainable
            pushed = even_step(draft.params[:k], draft.params[:k], state["previous"][:k], self.at(draft.round))
            step[:k] = pushed - draft.params[:k]
        return replace(draft, step=step), {}


def is_even(round: int) -> bool:
    """Whether this round is the free half of its pair; the first round is odd."""
    return round % 2 == 0


def kappa(mu: float, lam: float) -> float:
    """How far an even step goes: mu / (mu + lam), in (0, 1]."""
    return mu / (mu + lam)


def even_step(local: Vector, current: Vector, previous: Vector, kappa: float) -> Vector:
    """`local`, pushed by kappa along the way from the previous to the current global model."""
    return np.asarray(local + local.dtype.type(kappa) * (current - previous))
