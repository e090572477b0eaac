"""Walking: steps over a site's mini-batches, as many as asked and as there is time for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from edgefl.base.errors import RunError
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.contract import Budget, Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.training.divergence import check_loss, checked_step

Step: TypeAlias = Callable[[Vector, Array, Array], Vector]  # weights and a batch in, new weights out


@dataclass(frozen=True, slots=True)
class Walked:
    """Where a walk ended, how many steps it took and how many samples it saw."""

    params: Vector
    steps: int
    samples: int


class Sgd:
    """Stochastic gradient descent. Its momentum starts at zero with every new object, so with every round."""

    def __init__(
        self, layout: Layout, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, *, nesterov: bool = False
    ) -> None:
        self.trainable, self.nesterov = layout.trainable, nesterov
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
            ahead = self.velocity if not self.nesterov else g[:k] + w.dtype.type(self.momentum) * self.velocity
            g = np.concatenate([ahead, g[k:]])
        moved = g * w.dtype.type(self.lr)
        if k < len(w):
            moved[k:] = g[k:]
        return np.asarray(np.subtract(w, moved, out=moved))


def gradient(site: Site, w: Vector, x: Array, y: Array) -> Vector:
    """The gradient of the site's loss at `w` on one batch."""
    z, pullback = site.model.vjp(w, x)
    return pullback(loss_gradient(site, z, y))


def loss_gradient(site: Site, z: Array, y: Array) -> Array:
    """Return the gradient of the loss with respect to these logits; raise if the loss is not finite."""
    loss, dz = site.loss(z, y)
    if not site.unbroken:
        check_loss(loss)
    return dz


def per_pass(samples: int, batch: int, *, lone: bool = True) -> int:
    """Mini-batches in one pass, the short last one too; unless `lone`, not if it has one sample and is not the only."""
    rest = samples % batch
    return samples // batch + (rest > 1 or (rest == 1 and (lone or samples == 1)))


def lone(site: Site) -> bool:
    """Whether one sample can be a mini-batch: with BatchNorm it has no variance."""
    return not site.model.layout.buffers


def passes(samples: int, size: int, rng: np.random.Generator, *, lone: bool = True) -> Iterator[Array]:
    """The numbers of the samples, freshly shuffled for every pass, as far as they are in a mini-batch; without end."""
    if not samples:
        raise RunError("there is nothing to train on: the data set has no sample")
    count = per_pass(samples, size, lone=lone) * size
    while True:
        yield rng.permutation(samples)[:count]


def shuffled(data: Dataset, size: int, rng: np.random.Generator, *, lone: bool = True) -> Iterator[tuple[Array, Array]]:
    """Mini-batches without end: pass after pass over the data, each freshly shuffled."""
    for order in passes(len(data), size, rng, lone=lone):
        for i in range(0, len(order), size):
            rows = order[i : i + size]
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
        w = step(w, x, y) if site.unbroken else checked_step(steps + 1, step, w, x, y)
        steps, samples = steps + 1, samples + len(y)
        site.watch(steps)
        if steps >= goal or (end is not None and site.timer() >= end):
            break
    return Walked(w, steps, samples)
