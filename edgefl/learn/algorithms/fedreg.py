"""FedReg: local steps may not unlearn what the received model knows (Xu et al., 2022).

From each batch the device makes two more, once per round: pseudo data, which the received model w_old answers
confidently but differently, and barely perturbed data, which keep their labels. After each step the weights are
projected so that, to first order, neither loss has grown since w_old.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, State, Vector, dot
from edgefl.learn.contract import STRICT, Site, Task, Update
from edgefl.learn.losses import Loss, cross_entropy, softmax
from edgefl.learn.models.base import Model
from edgefl.learn.training.local import LocalTraining, gradient, lone, per_pass, shuffled, walk

Batch: TypeAlias = tuple[Array, Array]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedReg(LocalTraining):
    """Descent with two corrections per step.

    gamma       gradients are taken this far on the way from the received to the current weights
    eta_s       the input step of pseudo data; perturbed data use `ratio` times it
    mg          the modified gradient: the part that points at the pseudo inputs is taken out, for privacy
    pairing     fixed: every batch meets its own pseudo batch; cycle: batches are reshuffled, pseudo batches are not
    """

    name: Literal["fedreg"] = "fedreg"
    plain_steps: ClassVar[bool] = False
    batch: Annotated[int, Field(ge=1)] = 10
    epochs: Annotated[float, Field(gt=0)] = 20
    weights: Literal["samples", "uniform", "batch"] = "uniform"
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.3
    eta_s: Annotated[float, Field(ge=0)] = 0.2
    ratio: Annotated[float, Field(ge=0)] = 0.01
    pseudo_steps: Annotated[int, Field(ge=0)] = 10
    mg: bool = False
    clamp_inputs: bool = False
    pairing: Literal["fixed", "cycle"] = "fixed"

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        if site.data.classes < 2:
            raise ConfigError(f"algorithm 'fedreg' needs classes to confuse, the data have {site.data.classes}")
        if not np.issubdtype(site.data.x.dtype, np.floating):
            raise ConfigError(f"algorithm 'fedreg' moves its inputs by small steps, the data hold {site.data.x.dtype}")
        old, k = task.params, site.model.layout.trainable
        sgd, batches = self.sgd(site), one_pass(site, self.batch)
        guards = remembered(self.guard(site, old, batch) for batch in batches)

        def step(w: Vector, x: Array, y: Array) -> Vector:
            pseudo, perturbed = next(guards)
            slow = between(old, w, self.gamma, k)
            g = gradient(site, slow, x, y)
            if self.mg:
                x_m = pseudo[0] if self.pairing == "fixed" else self.confuse(site, old, x, y, self.eta_s)[0]
                uniform = np.full((len(x_m), site.data.classes), 1 / site.data.classes, x_m.dtype)
                g_m = gradient(site, slow, x_m, uniform)
                g = np.concatenate([modified_gradient(g[:k], g_m[:k]), g[k:]])
            w = sgd(w, g)
            middle = between(old, w, 0.5, k)  # here the Taylor expansion of a loss difference has no second-order term
            g_s, g_p = gradient(site, middle, *pseudo)[:k], gradient(site, middle, *perturbed)[:k]
            w[:k], _, _ = correct(w[:k], old[:k], g_s, g_p)
            return w

        anew = shuffled(site.data, self.batch, site.rng, lone=lone(site))
        stream = cycle(batches) if self.pairing == "fixed" else anew
        size, epochs = self.batch, self.epochs
        walked = walk(old, step, site, task.budget, batch=size, epochs=epochs, batches=self.batches, stream=stream)
        return self.update(task, site, walked), state

    def confuse(self, site: Site, old: Vector, x: Array, y: Array, step: float) -> Batch:
        """Pseudo data of one batch with these hyper-parameters."""
        return pseudo_data(
            site.model, old, x, y, step, self.pseudo_steps, loss=site.loss, clamp_inputs=self.clamp_inputs
        )

    def guard(self, site: Site, old: Vector, batch: Batch) -> tuple[Batch, Batch]:
        """The pseudo batch and the perturbed batch that stand guard over one batch."""
        x, y = batch
        return self.confuse(site, old, x, y, self.eta_s), (self.confuse(site, old, x, y, self.ratio * self.eta_s)[0], y)


def between(old: Vector, w: Vector, share: float, trainable: int) -> Vector:
    """Weights on the way from the received to the current model; statistics are the current ones."""
    # From the old model outwards, so that the first step does not depend on the share, to the last bit.
    mixed = old + w.dtype.type(share) * (w - old)
    mixed[trainable:] = w[trainable:]
    return np.asarray(mixed)


def pseudo_data(  # noqa: PLR0917 - a model, where it stands, a batch and how far to go
    model: Model,
    w: Vector,
    x: Array,
    y: Array,
    step: float,
    steps: int,
    *,
    loss: Loss = cross_entropy,
    clamp_inputs: bool = False,
) -> Batch:
    """Inputs moved away from their labels by gradient signs, and what the model answers to them; `x` is not touched."""
    moved = x.copy()
    for _ in range(steps):
        dz = loss(model.logits(w, moved), y)[1]
        moved = moved + moved.dtype.type(step) * np.sign(model.input_gradient(w, moved, dz))
        if clamp_inputs:
            moved = np.clip(moved, x.min(), x.max())
    return moved, softmax(model.logits(w, moved))


def correct(w: Vector, w_old: Vector, g_s: Vector, g_p: Vector) -> tuple[Vector, float, float]:
    """The weights after both corrections, and the two multipliers: <w_old - w, g> >= 0 for g_s, then for g_p.

    The second correction may break the first again; that is the method.
    """
    w_s = _excess(w, w_old, g_s)
    w = w - w.dtype.type(w_s) * g_s
    w_p = _excess(w, w_old, g_p)
    return w - w.dtype.type(w_p) * g_p, w_s, w_p


def _excess(w: Vector, w_old: Vector, g: Vector) -> float:
    length = dot(g, g)
    return max(dot(w - w_old, g) / length, 0.0) if length > 0 else 0.0


def modified_gradient(g: Vector, g_m: Vector) -> Vector:
    """The part of `g` that is orthogonal to `g_m`."""
    length = dot(g_m, g_m)
    return np.asarray(g - g.dtype.type(dot(g, g_m) / length) * g_m) if length > 0 else g.copy()


def one_pass(site: Site, size: int) -> list[Batch]:
    """The mini-batches of one shuffled pass."""
    stream = shuffled(site.data, size, site.rng, lone=lone(site))
    return [next(stream) for _ in range(per_pass(len(site.data), size, lone=lone(site)))]


def remembered(pairs: Iterable[tuple[Batch, Batch]]) -> Iterator[tuple[Batch, Batch]]:
    """Over and over the same things, each made when it is first needed: a short budget makes only what it uses."""
    seen = []
    for item in pairs:
        seen.append(item)
        yield item
    yield from cycle(seen)
