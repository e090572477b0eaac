"""FedDF: after the mean, the model learns from the ensemble of the round on unlabelled data (Lin et al., 2020)."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Traits
from edgefl.learn.evaluation.metrics import logits
from edgefl.learn.losses import cross_entropy, log_softmax, softmax
from edgefl.learn.training.local import LocalTraining
from edgefl.learn.training.public import Score, classified, polish, rows, score, split


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedDF(LocalTraining):
    """FedAvg's devices; at the coordinator the mean, then the ensemble."""

    name: Literal["feddf"] = "feddf"
    steps: Annotated[int, Field(ge=1)] = 1000
    rate: Annotated[float, Field(gt=0)] = 1e-3

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Ensemble(steps=self.steps, rate=self.rate))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Ensemble:
    """Descends KL(softmax(mean of the devices' logits) || student) on public samples; labels are not looked at.

    The published setting is up to 10000 steps; our default is a tenth, which is what a CPU can afford each round.
    """

    name: Literal["ensemble"] = "ensemble"
    rate: Annotated[float, Field(gt=0)] = 1e-3
    batch: Annotated[int, Field(ge=1)] = 32
    steps: Annotated[int, Field(ge=1)] = 1000
    every: Annotated[int, Field(ge=1)] = 50  # steps from one look at the validation part to the next
    patience: Annotated[int, Field(ge=1)] | None = 5
    patience_on: Literal["divergence", "loss", "accuracy"] = "divergence"  # the last two do look at labels

    traits = Traits(
        individual=True,
        one_model="it adds each update to the current model to recover the device's own model",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        classified(site, "aggregation 'ensemble'")
        if not draft.updates:
            return draft, state
        public = split(site, self.name)
        x, held_out = public.training.x, public.validation.x
        target = softmax(mean_logits(draft, site, x))
        adam = CosineAdam(site.model.layout, self.rate, self.steps)

        def step(w: Vector, rows: Array) -> Vector:
            z, pullback = site.model.vjp(w, x[rows])
            return adam(w, pullback(cross_entropy(z, target[rows])[1]))

        polished = polish(
            draft.params + draft.step,
            step,
            divergence(site, held_out, mean_logits(draft, site, held_out))
            if self.patience_on == "divergence"
            else score(site, public.validation, self.patience_on),
            rows(len(x), self.batch, site),
            checks=-(-self.steps // self.every),
            every=self.every,
            patience=self.patience,
        )
        return replace(draft, step=polished.params - draft.params), {"steps": np.array(polished.check * self.every)}


def mean_logits(draft: Draft, site: Site, x: Array) -> Array:
    """The mean of the devices' logits, not of their probabilities."""
    total: Array | None = None
    for update in draft.updates.values():
        z = logits(site.model, draft.params + update.delta, x)
        total = z if total is None else np.add(total, z, out=total)
    if total is None:
        raise ValueError("an ensemble needs at least one member")
    return np.asarray(total / total.dtype.type(len(draft.updates)))


def divergence(site: Site, x: Array, teacher: Array) -> Score:
    """How far a model is from the ensemble on `x`: KL(teacher || student), mean over the samples."""
    logp = log_softmax(teacher)

    def far(w: Vector) -> float:
        return float((np.exp(logp) * (logp - log_softmax(logits(site.model, w, x)))).sum(axis=1).mean())

    return far


class CosineAdam:
    """Adam whose rate falls along half a cosine from `rate` to zero at step `steps`."""

    def __init__(self, layout: Layout, rate: float, steps: int) -> None:
        self.trainable, self.rate, self.steps = layout.trainable, rate, steps
        self.m: Vector | float = 0.0
        self.v: Vector | float = 0.0
        self.t = 0

    def __call__(self, w: Vector, g: Vector) -> Vector:
        """The weights after one step along `g`; statistics move by exactly their entry."""
        k, real = self.trainable, w.dtype.type
        rate = self.rate * 0.5 * (1 + np.cos(np.pi * min(1.0, self.t / self.steps)))
        self.t += 1
        self.m = real(0.9) * self.m + real(0.1) * g[:k]
        self.v = real(0.999) * self.v + real(0.001) * g[:k] * g[:k]
        step = (self.m / real(1 - 0.9**self.t)) / (np.sqrt(self.v / real(1 - 0.999**self.t)) + real(1e-8))
        return np.asarray(np.concatenate([w[:k] - real(rate) * step, w[k:] - g[k:]]))
