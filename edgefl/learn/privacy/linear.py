"""Softmax regression, as far as objective perturbation needs it: what one sample can do, and the exact minimiser.

The logits of one linear layer are W x + c. Cross-entropy of K logits, for features x no longer than 1, has per sample

    gradient    (p - e_y) (x, 1)'             length at most sqrt(2) sqrt(1 + 1) = 2           u1
    Hessian     (diag p - p p') x~ x~'        eigenvalues at most 1/2 (1 + 1) = 1, rank K - 1   u2, rank

with p the softmax, e_y the label and x~ = (x, 1); without a bias c, x~ is x and no longer than 1. A loss with another
Hessian, or a network with hidden layers, has no such bounds, and none of the theorems holds for it.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from edgefl.base.errors import ConfigError, RunError
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.contract import Site
from edgefl.learn.losses import LOSSES, Loss, cross_entropy, softmax

TOLERANCE = 1e-10  # the length of the gradient at which the minimiser counts as found
STEPS = 100_000
LOOK = 64  # drawn samples on which the model must do what one linear layer does


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one sample can do: the length of its gradient, and the largest eigenvalue and the rank of its Hessian."""

    u1: float
    u2: float
    rank: int


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """One linear layer and its number of outputs, with a bias or without."""

    features: int
    outputs: int
    bias: bool

    def bounds(self) -> Bounds:
        """The bounds under cross-entropy, for features no longer than 1."""
        square = 2.0 if self.bias else 1.0  # of the longest feature vector, with the constant 1 of the bias
        return Bounds(u1=sqrt(2 * square), u2=square / 2, rank=self.outputs - 1)

    def split(self, w: Array) -> tuple[Array, Array]:
        """Kernel and bias of a flat vector."""
        kernel = self.outputs * self.features
        return w[:kernel].reshape(self.outputs, self.features), w[kernel:] if self.bias else np.zeros(self.outputs)

    def logits(self, w: Array, x: Array) -> Array:
        kernel, bias = self.split(w)
        return np.asarray(x @ kernel.T + bias)

    def gradient(self, w: Array, x: Array, y: Array) -> Array:
        """The gradient of the mean cross-entropy, in the precision of `w`."""
        dz = softmax(self.logits(w, x))
        dz[np.arange(len(y)), y] -= 1
        dz /= len(y)
        parts = [(dz.T @ x).reshape(-1), *([dz.sum(axis=0)] if self.bias else [])]
        return np.concatenate(parts)


def linear_layer(layout: Layout) -> LinearLayer:
    """The layer behind a layout of one kernel (outputs, inputs) and, perhaps, one bias; refuses any other."""
    shapes = layout.shapes
    if (
        layout.buffers
        or len(shapes) not in {1, 2}
        or len(shapes[0]) != 2
        or (len(shapes) == 2 and shapes[1] != (shapes[0][0],))
        or shapes[0][0] < 2
    ):
        raise ConfigError(
            f"privacy: a model of {len(shapes)} tensors is not softmax regression, the only model that the proof of"
            " objective perturbation covers; use task.model = 'softmax' or mechanism 'output'",
            free_of_data=True,
        )
    return LinearLayer(shapes[0][1], shapes[0][0], bias=len(shapes) == 2)


def check_loss(loss: Loss) -> None:
    """Nothing for cross-entropy; other losses are not convex, or have no bound on their gradient."""
    if loss is not cross_entropy:
        name = next((name for name, known in LOSSES.items() if known is loss), "of your own")
        raise ConfigError(
            f"privacy: the proof of objective perturbation does not cover loss '{name}';"
            " use task.loss = 'cross_entropy' or mechanism 'output'",
            free_of_data=True,
        )


def check_site(layer: LinearLayer, site: Site) -> tuple[Array, Array]:
    """Return features, one row each, and labels, in double precision; refuse what the proof does not cover.

    A device that hides how work goes shortens features that are too long, where others refuse them.
    """
    check_loss(site.loss)
    x = np.asarray(site.data.x, np.float64).reshape(len(site.data), -1)
    lengths = np.sqrt((x * x).sum(axis=1))
    longest = float(lengths.max(initial=0.0))
    if longest > 1 + 1e-6 and not site.unbroken:  # float32 rounding of a normalised row is no reason to refuse
        raise ConfigError(
            f"privacy: a feature vector has length {longest:.4g}; scale the features to at most 1",
            told="privacy: a feature vector is longer than 1; scale the features to at most 1",
        )
    x /= np.maximum(1.0, lengths)[:, None]  # each by itself: what a record says must not change another
    w = np.random.default_rng(0).normal(size=site.model.layout.size).astype(np.float32)
    few = _drawn(site.data.x)
    rows = few.astype(np.float64).reshape(LOOK, -1)
    if x.shape[1] != layer.features or not np.allclose(
        site.model.logits(w, few), layer.logits(w.astype(np.float64), rows), rtol=1e-3, atol=1e-3
    ):
        raise ConfigError(
            "privacy: the model does something else than one linear layer, so the proof of objective perturbation"
            " does not cover it; use task.model = 'softmax' or mechanism 'output'",
            free_of_data=True,
        )
    return x, site.data.y


def _drawn(x: Array) -> Array:
    """Return samples like these, drawn at random: a model may be made to differ on the device's own alone."""
    rows = np.random.default_rng(1).normal(size=(LOOK, *x.shape[1:]))
    longest = np.sqrt((rows * rows).reshape(LOOK, -1).sum(axis=1).max())
    return np.asarray(rows / longest, x.dtype)


def minimise(  # noqa: PLR0917 - the problem, symbol by symbol
    layer: LinearLayer, x: Array, y: Array, anchor: Vector, mu: float, tilt: Vector
) -> Array:
    """The w with the least mean loss + mu/2 ||w - anchor||^2 + <tilt, w>.

    The gradient there is no longer than TOLERANCE, so w is within TOLERANCE / mu of the exact one. By Nesterov's method
    for known curvature: it lies between `mu` and `mu` + u2.
    """
    steep = mu + layer.bounds().u2
    swing = (sqrt(steep) - sqrt(mu)) / (sqrt(steep) + sqrt(mu))
    anchor, tilt = anchor.astype(np.float64), tilt.astype(np.float64)
    w = ahead = anchor
    for _ in range(STEPS):
        g = layer.gradient(ahead, x, y) + mu * (ahead - anchor) + tilt
        if np.sqrt(g @ g) <= TOLERANCE:
            return np.asarray(ahead)
        before, w = w, ahead - g / steep
        ahead = w + swing * (w - before)
    raise RunError(
        f"privacy: the local problem was not solved in {STEPS} steps, so nothing is sent; raise algorithm.mu",
        free_of_data=True,
    )
