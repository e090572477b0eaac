"""Plain descent: whole steps in the model's own graph where it has one for them, and otherwise one by one in numpy.

`in_graph` decides which, and nothing else does. A graph is taken if it was made for this loss and for exactly the terms
of this rule; what corrects a gradient in another way (SCAFFOLD, GradMA, FedReg, ...) does not come here at all.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Protocol, runtime_checkable

import numpy as np

from edgefl.base.errors import Diverged
from edgefl.base.vector import Array, Vector
from edgefl.learn.contract import Algorithm, Budget, Ruled, Site
from edgefl.learn.losses import Loss, cross_entropy, double_softmax, squared_error
from edgefl.learn.models.base import Descent, descends
from edgefl.learn.models.rule import Rule, StepPlan
from edgefl.learn.training.divergence import check_loss
from edgefl.learn.training.optimisers import Optimiser
from edgefl.learn.training.walking import Step, Walked, gradient, lone, passes, steps_asked, walk

IN_GRAPHS: dict[Loss, str] = {
    cross_entropy: "cross_entropy",
    double_softmax: "double_softmax",
    squared_error: "squared_error",
}


def descend(
    rule: Rule,
    start: Vector,
    site: Site,
    budget: Budget,
    *,
    batch: int,
    epochs: float | None = None,
    batches: int | None = None,
    optimiser: Optimiser | None = None,
) -> Walked:
    """Take plain steps from `start` over the site's data, as many as asked and as the budget allows, at least one."""
    descent = in_graph(rule, start, site, batch) if optimiser is None or optimiser.plain else None
    if descent is None:
        step = one_by_one(rule, start, site, optimiser)
        return walk(start, step, site, budget, batch=batch, epochs=epochs, batches=batches)
    goal = steps_asked(len(site.data), batch, epochs, batches, budget, lone=lone(site))
    with closing(descent):
        return _walk(descent, site, batch, goal, budget.seconds)


def step_plan(algorithm: Algorithm, loss: Loss) -> StepPlan | None:
    """Which whole steps the devices of a run take; None where they take none."""
    rule, name = algorithm.rule() if isinstance(algorithm, Ruled) else None, IN_GRAPHS.get(loss)
    plain = not isinstance(algorithm, Optimising) or algorithm.optimiser is None or algorithm.optimiser.plain
    return StepPlan(name, rule.terms) if rule is not None and name is not None and plain else None


@runtime_checkable
class Optimising(Protocol):
    """An algorithm whose steps may be those of another optimiser."""

    @property
    def optimiser(self) -> Optimiser | None: ...


def in_graph(rule: Rule, start: Vector, site: Site, batch: int) -> Descent | None:
    """The model's own walk by this rule, if it has a graph for it and the labels are what the graph takes."""
    model, loss, y = site.model, IN_GRAPHS.get(site.loss), site.data.y
    if loss is None or not descends(model) or not len(y):
        return None
    if min(batch, len(y)) == 1 and not lone(site):
        return None  # BatchNorm of one sample has no variance: another graph
    descent = model.descent(loss, rule, start)
    if descent is not None and not _fits(loss, y, descent.outputs):
        descent.close()
        return None
    return descent


def one_by_one(rule: Rule, start: Vector, site: Site, optimiser: Optimiser | None = None) -> Step:
    """The same step in numpy, with a velocity of its own."""
    sgd = (optimiser or Optimiser()).begin(site.model.layout, rule)
    if not rule.pull:
        return lambda w, x, y: sgd(w, gradient(site, w, x, y))
    k = site.model.layout.trainable
    return lambda w, x, y: sgd(w, gradient(site, w, x, y) + pull(rule.pull, w, start, k))


def pull(mu: float, w: Vector, anchor: Vector, trainable: int) -> Vector:
    """The gradient of mu/2 ||w - anchor||^2, zero for statistics."""
    g = np.subtract(w, anchor)
    g *= w.dtype.type(mu)
    g[trainable:] = 0
    return np.asarray(g)


def _fits(loss: str, y: Array, outputs: int) -> bool:
    """Return whether these are class numbers below `outputs`, or rows of `outputs` real numbers."""
    if loss == "squared_error":
        return bool(y.size == len(y) * outputs)
    return y.ndim == 1 and y.dtype.kind in "iu" and bool(y.min() >= 0) and bool(y.max() < outputs)


def _walk(descent: Descent, site: Site, batch: int, goal: int, seconds: float | None) -> Walked:
    began, steps, samples = site.timer(), 0, 0
    for rows in _mini_batches(site, batch):
        done = 0
        while done < len(rows):
            left, most = min(len(rows) - done, goal - steps), descent.most(rows.shape[1])
            if seconds is None:
                count = _evenly(left, most)
            else:
                count = _power(min(left, most, _in_time(site.timer() - began, steps, seconds)))
            _checked(descent, site, rows[done : done + count], steps)
            for _ in range(count):
                steps += 1
                site.watch(steps)
            done, samples = done + count, samples + count * rows.shape[1]
            if steps >= goal or (seconds is not None and site.timer() - began >= seconds):
                return Walked(descent.params(), steps, samples)
    raise AssertionError("passes have no end")


def _mini_batches(site: Site, size: int) -> Iterator[Array]:
    """Sample numbers of mini-batches of one size, a row each: the whole ones of a pass, then the short last one."""
    for order in passes(len(site.data), size, site.rng, lone=lone(site)):
        whole = len(order) // size * size
        if whole:
            yield order[:whole].reshape(-1, size)
        if whole < len(order):
            yield order[whole:].reshape(1, -1)


def _evenly(count: int, most: int) -> int:
    """Return how many steps the next call takes: there are as few calls as possible, of equal length."""
    return -(-count // -(-count // most))


def _power(count: int) -> int:
    """The largest power of two in it: a graph is checked anew for every number of steps, and time would allow any."""
    return 1 << (max(1, count).bit_length() - 1)


def _in_time(gone: float, steps: int, seconds: float) -> int:
    """How many steps fit into the rest of the time, by the pace so far."""
    return int((seconds - gone) * steps / gone) if steps and gone > 0 else 1


def _checked(descent: Descent, site: Site, rows: Array, steps: int) -> None:
    """Take a step for each row; one that leaves the finite numbers is found, and named."""
    losses = descent.take(site.data.x, site.data.y, rows)
    if site.unbroken or (np.isfinite(losses).all() and descent.is_finite()):
        return
    if len(rows) == 1:
        try:
            check_loss(float(losses[0]))
        except Diverged as error:
            raise Diverged(f"step {steps + 1}: {error}") from None
        raise Diverged(f"step {steps + 1}: the weights are not finite any more")
    descent.back()
    for i in range(len(rows)):
        _checked(descent, site, rows[i : i + 1], steps + i)
