"""GradMA: gradients and momentum that do not work against what is remembered (Luo et al., CVPR 2023).

    device         every gradient is projected so that it does not oppose the gradient of the step before, the
                   gradient at the received model, and the way walked so far
    coordinator    its momentum is projected so that it does not oppose any remembered device; of each it keeps a
                   decaying sum of updates, and of at most m devices, the most often seen

The paper writes d = received - local and subtracts; here all is `delta = local - received` and added. Both sides of
every product change their sign, so the constraints are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean, Momentum
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.products import ON_CPU, Products, Rows
from edgefl.learn.training.local import LocalTraining, Rule, Step, gradient
from edgefl.learn.training.projection import NEGLIGIBLE, Granularity, parts, project, solve_dual

Decay = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class GradMA(LocalTraining):
    """Variant "full" is GradMA, "worker" GradMA-W (FedAvg's coordinator), "server" GradMA-S (FedAvg's device)."""

    name: Literal["gradma"] = "gradma"
    lr: Annotated[float, Field(gt=0)] = 0.01
    batch: Annotated[int, Field(ge=1)] = 64
    batches: Annotated[int, Field(ge=1)] | None = 5
    weights: Literal["samples", "uniform", "batch"] = "uniform"
    variant: Literal["full", "worker", "server"] = "full"
    prev: Literal["local", "global"] = "local"  # the step before the first: where the device last ended, or none
    memories: Annotated[int, Field(ge=0)] = 100
    beta1: Decay = 0.5
    beta2: Decay = 0.5
    rate: Annotated[float, Field(gt=0)] = 1.0
    granularity: Granularity = "model"  # the paper's; "tensor" is its authors' program's

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        if self.variant == "server":
            return self.update(task, site, self.descend(task, site)), state
        walked = self.walk(task, site, self.careful(task.params, state.get("last", task.params), site))
        return self.update(task, site, walked), {"last": walked.params} if self.prev == "local" else {}

    def rule(self) -> Rule | None:
        """GradMA-S has FedAvg's devices; the gradient of the others is projected."""
        return super().rule() if self.variant == "server" else None

    def careful(self, received: Vector, last: Vector, site: Site) -> Step:
        """A step along the projected gradient; all three gradients are of the same mini-batch."""
        sgd, slices = self.sgd(site), parts(site.model.layout, self.granularity)
        before = last if self.prev == "local" else received

        def step(w: Vector, x: Array, y: Array) -> Vector:
            nonlocal before
            g = gradient(site, w, x, y)
            if w is received and before is received:  # rows g, g and 0: nothing is opposed
                return sgd(w, g)
            at_start = g if w is received else gradient(site, received, x, y)
            at_before = at_start if before is received else gradient(site, before, x, y)
            way, before = w - received, w
            kept = g.copy()
            for s in slices:
                kept[s] = worker_gradient(g[s], [at_before[s], at_start[s], way[s]])
            return sgd(w, kept)

        return step

    def stages(self) -> tuple[Stage, ...]:
        if self.variant == "worker":
            return (Mean(),)
        return Mean(), Memory(self.memories, self.beta1, self.beta2, self.granularity, self.rate)


def worker_gradient(g: Vector, rows: Rows) -> Vector:
    """The nearest vector to `g` that opposes none of the rows; rows of zeros ask for nothing."""
    return project(g, rows).x


class Reduced(NamedTuple):
    """Who is remembered after a round: how often each was seen, in order of insertion, and who came in new."""

    counters: dict[str, int]
    order: tuple[str, ...]
    new: tuple[str, ...]


def reduce_memory(counters: Mapping[str, int], order: Sequence[str], sampled: Sequence[str], size: int) -> Reduced:
    """Make room for the sampled devices, in their order, among at most `size`.

    The least often seen goes first, of equals the earliest inserted, but never one of this round. A device that is
    not remembered has the counter zero.
    """
    if len(set(sampled)) > size:
        raise ConfigError(
            f"memory of {size} devices: {len(set(sampled))} answered in one round; "
            "raise `memories` (stage: `size`) to at least the cohort, or set 0 for plain momentum"
        )
    seen, kept, new = dict(counters), list(order), list[str]()
    for device in sampled:
        if device not in kept:
            if len(kept) == size:
                evicted = min((d for d in kept if d not in sampled), key=lambda d: seen[d])
                kept.remove(evicted)
                seen[evicted] = 0
            kept.append(device)
            new.append(device)
        seen[device] = seen.get(device, 0) + 1
    return Reduced(seen, tuple(kept), tuple(new))


@dataclass(frozen=True, config=STRICT)
class Memory:
    """Server momentum that opposes no remembered device: m = beta1 m + step, projected, and carried over projected.

    Each row is a device's decaying sum of updates, D = beta2 D + delta. A row that is not touched in a round only gets
    a smaller scale. Neither its numbers nor its products with other such rows change, so a round costs one pass over
    the memory. Rows are arrays of their own and never written to, so nothing is copied and old states stay good.

    A late update enters the memory as a member's that had no part in the mean, after the round's own and as far as
    there is room; a fresh update of the same device wins. Size 0 is FedAvgM. Statistics are left alone.

    A free round is a round without answers: all rows decay, the momentum takes in the push, and what comes of
    both opposes no remembered device.
    """

    size: Annotated[int, Field(ge=0)] = 100
    beta1: Decay = 0.5
    beta2: Decay = 0.5
    granularity: Granularity = "model"
    rate: Annotated[float, Field(gt=0)] = 1.0
    name: Literal["memory"] = "memory"

    traits = Traits(
        individual=True,
        one_model="it bends the step so that no device objects, and they object from one point",
        without_devices=True,
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        layout, real = site.model.layout, draft.step.dtype.type
        if self.size == 0:
            return Momentum(beta=self.beta1, rate=self.rate).apply(draft, state, site)
        k = layout.trainable
        mo = draft.step[:k] if "m" not in state else real(self.beta1) * state["m"] + draft.step[:k]
        late = [device for device in draft.late if device not in draft.updates]
        arrived = {**draft.updates, **{d: draft.late[d] for d in late[: max(0, self.size - len(draft.updates))]}}
        memory = self.remember(state, {device: update.delta[:k] for device, update in arrived.items()})
        mt, record = restrain(mo, memory, state.get("gram"), parts(layout, self.granularity), site.products)
        record["unsolved"] += state.get("unsolved", 0)
        kept = {
            "members": np.array(memory.members, np.str_),
            "counters": memory.counters,
            "scales": memory.scales,
            **{f"row.{i}": row for i, row in enumerate(memory.rows)},
        }
        step = np.concatenate([real(self.rate) * mt, draft.step[k:]])
        return replace(draft, step=step), {"m": mt, **kept, **record}

    def remember(self, state: State, deltas: Mapping[str, Vector]) -> "Remembered":
        """The memory after these updates."""
        before = {str(device): i for i, device in enumerate(state.get("members", ()))}
        counted = {device: int(state["counters"][i]) for device, i in before.items()}
        counters, order, new = reduce_memory(counted, tuple(before), tuple(deltas), self.size)
        rows, scales, was = list[Vector](), list[float](), list[int]()
        for device in order:
            if device in new:
                row, scale = np.array(deltas[device]), 1.0
            else:
                row, scale = state[f"row.{before[device]}"], self.beta2 * float(state["scales"][before[device]])
                if device in deltas:
                    row, scale = row * row.dtype.type(scale), 1.0
                    row += deltas[device]
            rows.append(row)
            scales.append(scale)
            was.append(-1 if device in deltas else before[device])
        seen = np.array([counters[device] for device in order], np.int64)
        return Remembered(order, seen, np.array(scales), rows, np.array(was, np.int64))


class Remembered(NamedTuple):
    """Rows times scales are what is remembered; `was` tells where an untouched row stood before, -1 the others."""

    members: tuple[str, ...]
    counters: Array
    scales: Array
    rows: list[Vector]
    was: Array


def restrain(
    mo: Vector, memory: Remembered, old: Array | None, slices: Sequence[slice], products: Products = ON_CPU
) -> tuple[Vector, State]:
    """The nearest vector to `mo` that opposes no row, part by part; and what is worth keeping of the computation.

    `gram` has the products of the rows without their scales, one matrix per part. A constraint <y, row> >= 0 does not
    depend on lengths; only a row that has decayed to zero is left out.
    """
    mt, n = mo.copy(), len(memory.rows)
    gram, unsolved, largest, before, after = np.zeros((len(slices), n, n)), 0, 0.0, 0.0, 0.0
    for part, s in enumerate(slices):
        gram[part], against, square = renewed(mo, memory, None if old is None else old[part], s, products)
        lengths = memory.scales * np.sqrt(np.diagonal(gram[part]))
        alive = np.flatnonzero(lengths > NEGLIGIBLE * lengths.max(initial=0.0))
        lively = gram[part][np.ix_(alive, alive)]
        dual = solve_dual(lively, against[alive], length=sqrt(square))
        z = dual.multipliers
        mt[s] = products.recover(mo[s], [memory.rows[i][s] for i in alive.tolist()], z)
        unsolved, largest = unsolved + (not dual.feasible), max(largest, z.max(initial=0.0))
        before, after = before + square, after + square + 2 * z @ against[alive] + z @ lively @ z
    shrunk = sqrt(max(0.0, after) / before) if before else 1.0  # towards 0 when many rows are in conflict
    report = {"unsolved": np.array(unsolved), "largest": np.array(largest), "shrunk": np.array(shrunk)}
    return mt, {"gram": gram, **report}


def renewed(
    mo: Vector, memory: Remembered, old: Array | None, s: slice, products: Products = ON_CPU
) -> tuple[Array, Array, float]:
    """Products of the rows with each other, with `mo`, and of `mo` with itself; old ones are used where they hold."""
    touched, same = np.flatnonzero(memory.was < 0), np.flatnonzero(memory.was >= 0)
    order = np.concatenate([touched, same])
    table = products.inner([mo[s], *(memory.rows[i][s] for i in order.tolist())], lead=1 + len(touched))
    gram, against = np.empty((len(order), len(order))), np.empty(len(order))
    if old is not None:
        gram[np.ix_(same, same)] = old[np.ix_(memory.was[same], memory.was[same])]
    gram[np.ix_(touched, order)] = table[1:, 1:]
    gram[np.ix_(order, touched)] = table[1:, 1:].T
    against[order] = table[0, 1:]
    return gram, against, float(table[0, 0])
