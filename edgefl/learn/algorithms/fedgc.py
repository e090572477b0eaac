"""FedGC: devices do not forget the last round, and the coordinator forgets no device (gradient constraints).

A few mini-batches make a device's gradient h, here as in the paper the direction of descent. CGC pushes it until it
agrees with the coordinator's last gradient z, tensor by tensor; SGC pushes the mean until it agrees with every
device's gradient. Both are projections with a margin C:

    device         u = nearest to h with <u, z> >= C                closed form
    coordinator    g = nearest to the mean with <g, g_k> >= C       edgefl.learn.training.projection

What travels and what a pipeline works on are steps of the model, eta times a gradient. In these units the same
constraints have the margin C eta^2, and nothing else changes.
"""

from dataclasses import replace
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Layout, State, Vector, dot, norm
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.products import ON_CPU, Products, Rows
from edgefl.learn.training.local import LocalTraining
from edgefl.learn.training.projection import NEGLIGIBLE, Granularity, Projection, parts, solve_dual


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedGC(LocalTraining):
    """FedAvg with the two constraints; without both it is FedAvg, bit for bit."""

    name: Literal["fedgc"] = "fedgc"
    batch: Annotated[int, Field(ge=1)] = 100
    batches: Annotated[int, Field(ge=1)] | None = 5
    weights: Literal["samples", "uniform", "batch"] = "batch"
    cgc: bool = True
    sgc: bool = True
    margin: Annotated[float, Field(gt=0)] = 1e-3
    c_rel: Annotated[float, Field(gt=0)] | None = None  # the guard of `pulls`
    granularity: Granularity = "tensor"  # of CGC; SGC looks at the whole model

    traits = Traits(
        one_model="devices correct themselves by the server's last step, as of the round before",
        uses_previous=True,
    )

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        update = self.update(task, site, self.descend(task, site))
        if not self.cgc:
            return update, state
        # In the first round there is nothing to agree with.
        z = np.zeros_like(task.params) if task.previous is None else task.params - task.previous
        slices = parts(site.model.layout, self.granularity)
        pushes = pulls(update.delta, z, slices, self.margin * self.lr**2, self.c_rel)
        told = {"corrected": np.array(len(pushes), np.int64)}
        return replace(update, delta=pushed(update.delta, z, pushes), extra=told), noted(state, pushes)

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Sgc(margin=self.margin, lr=self.lr)) if self.sgc else (Mean(),)


def cgc(h: Vector, z: Vector, layout: Layout | None = None, margin: float = 1e-3, c_rel: float | None = None) -> Vector:
    """The nearest u to `h` with <u, z> >= margin, for each trained tensor of the layout or for the whole vector.

    Where z is zero, or h already agrees with it, u is h.
    """
    slices = (slice(0, len(h)),) if layout is None else parts(layout, "tensor")
    return pushed(h, z, pulls(h, z, slices, margin, c_rel))


def pulls(
    h: Vector, z: Vector, slices: tuple[slice, ...], margin: float, c_rel: float | None = None
) -> list[tuple[slice, float]]:
    """The slices of h that must be pushed, each with the multiple v > 0 of z that does it.

    A push has length margin / ||z||, which explodes when z gets small: with the guard `c_rel` the margin is never
    more than c_rel ||h|| ||z||.
    """
    pushes = []
    for s in slices:
        square = dot(z[s], z[s])
        least = margin if c_rel is None else min(margin, c_rel * norm(h[s]) * sqrt(square))
        if square > 0 and (missing := least - dot(h[s], z[s])) > 0:
            pushes.append((s, missing / square))
    return pushes


def pushed(h: Vector, z: Vector, pushes: list[tuple[slice, float]]) -> Vector:
    """`h` after these pushes; h itself if there are none."""
    if not pushes:
        return h
    u = h.copy()
    for s, v in pushes:
        u[s] += np.multiply(z[s], v, dtype=np.float64)  # v alone may be too large for float32
    return u


def noted(state: State, pushes: list[tuple[slice, float]]) -> State:
    """The device's record: how many tensors were ever pushed, and the largest multiple."""
    largest = max([float(state.get("largest", np.zeros(()))), *(v for _, v in pushes)])
    corrected = int(state.get("corrected", np.zeros((), np.int64))) + len(pushes)
    return {**state, "corrected": np.array(corrected, np.int64), "largest": np.array(largest)}


def sgc(
    mean: Vector, gradients: Rows, margin: float = 1e-3, strict: bool = False, products: Products = ON_CPU
) -> Projection:
    """The nearest g to `mean` with <g, g_k> >= margin for every gradient; `mean` itself where there is none.

    A device that sent nothing but zeros is left out; with `strict` it makes the problem infeasible.
    """
    k = len(gradients)
    table = products.inner([*gradients, mean])
    lengths = np.sqrt(np.diagonal(table)[:k])
    keep = np.arange(k) if strict else np.flatnonzero(lengths > NEGLIGIBLE * lengths.max(initial=0.0))
    dual = solve_dual(table[np.ix_(keep, keep)], table[keep, k], margin, sqrt(table[k, k]))
    multipliers = np.zeros(k)
    multipliers[keep] = dual.multipliers
    return Projection(products.recover(mean, gradients, multipliers), multipliers, dual.feasible)


@dataclass(frozen=True, config=STRICT)
class Sgc:
    """The step agrees with every device's update, if that is possible; otherwise it stays as it is, and is counted.

    `lr` is the devices' rate: it turns steps into gradients, on which the margin is defined. After a device half
    that has no single rate leave it at one, and the margin is one on steps. Statistics are left alone, and so is the
    push of a free round: there is no device to agree with.
    """

    name: Literal["sgc"] = "sgc"
    margin: Annotated[float, Field(ge=0)] = 1e-3
    lr: Annotated[float, Field(gt=0)] = 1.0
    granularity: Granularity = "model"
    strict: bool = False

    traits = Traits(
        individual=True,
        one_model="it compares updates with one another, as gradients at one point",
        without_devices=True,
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        step, infeasible, largest = draft.step.copy(), 0, 0.0
        for s in parts(site.model.layout, self.granularity):
            deltas = [update.delta[s] for update in draft.updates.values()]
            solution = sgc(draft.step[s], deltas, self.margin * self.lr**2, self.strict, site.products)
            step[s] = solution.x
            infeasible += not solution.feasible
            largest = max(largest, solution.multipliers.max(initial=0.0))
        total = int(state.get("infeasible", np.zeros((), np.int64))) + infeasible
        return replace(draft, step=step), {"infeasible": np.array(total, np.int64), "largest": np.array(largest)}
