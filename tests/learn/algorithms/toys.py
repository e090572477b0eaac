"""Toy models in plain numpy, small enough to work out by hand, and helpers that put them on a site.

They keep the dtype of the weights: float64 weights give float64 logits and gradients.
"""

from collections.abc import Callable

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.contract import Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import Loss, cross_entropy
from edgefl.learn.models.base import Model


class Linear:
    """z = x W (+ b). With `statistics` the vector ends in a running mean of x, as BatchNorm's would."""

    def __init__(self, features: int, classes: int, bias: bool = True, statistics: bool = False) -> None:
        self.features, self.classes, self.bias, self.statistics = features, classes, bias, statistics
        tensors = [("weight", (features, classes))]
        tensors += [("bias", (classes,))] if bias else []
        tensors += [("running_mean", (features,))] if statistics else []
        names, shapes = zip(*tensors, strict=True)
        self._layout = Layout(names, shapes, int(statistics))

    @property
    def layout(self) -> Layout:
        return self._layout

    def logits(self, w: Vector, x: Array) -> Array:
        parts = self.layout.layers(w)
        z = _rows(x, w) @ parts["weight"]
        return z + parts["bias"] if self.bias else z

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        rows = _rows(x, w)

        def pullback(dz: Array) -> Vector:
            grads = [(rows.T @ dz).reshape(-1)]
            grads += [dz.sum(axis=0)] if self.bias else []
            if self.statistics:  # old minus new, so that a step with rate one moves the statistic exactly
                old = self.layout.layers(w)["running_mean"]
                grads += [w.dtype.type(0.1) * (old - rows.mean(axis=0))]
            return np.concatenate(grads).astype(w.dtype)

        return self.logits(w, x), pullback

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        return (dz @ self.layout.layers(w)["weight"].T).reshape(x.shape).astype(w.dtype)


class Mlp:
    """z = tanh(x W1 + b1) W2 + b2: the smallest network whose loss is not convex."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        self._layout = Layout(
            ("hidden.weight", "hidden.bias", "head.weight", "head.bias"),
            ((features, hidden), (hidden,), (hidden, classes), (classes,)),
        )

    @property
    def layout(self) -> Layout:
        return self._layout

    def logits(self, w: Vector, x: Array) -> Array:
        return self._forward(w, x)[1]

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        rows = _rows(x, w)
        h, z = self._forward(w, x)
        head = self.layout.layers(w)["head.weight"]

        def pullback(dz: Array) -> Vector:
            da = (dz @ head.T) * (1 - h * h)
            parts = [(rows.T @ da).reshape(-1), da.sum(axis=0), (h.T @ dz).reshape(-1), dz.sum(axis=0)]
            return np.concatenate(parts).astype(w.dtype)

        return z, pullback

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        parts, (h, _) = self.layout.layers(w), self._forward(w, x)
        da = (dz @ parts["head.weight"].T) * (1 - h * h)
        return (da @ parts["hidden.weight"].T).reshape(x.shape).astype(w.dtype)

    def _forward(self, w: Vector, x: Array) -> tuple[Array, Array]:
        parts = self.layout.layers(w)
        h = np.tanh(_rows(x, w) @ parts["hidden.weight"] + parts["hidden.bias"])
        return h, h @ parts["head.weight"] + parts["head.bias"]


def weights(model: Model, seed: int = 0, dtype: type = np.float32, scale: float = 0.5) -> Vector:
    """Random weights for a model, the same for the same seed."""
    return (scale * seeds.stream(seed, "weights").standard_normal(model.layout.size)).astype(dtype)


def dataset(
    samples: int = 40, features: int = 4, classes: int = 3, seed: int = 0, only: tuple[int, ...] | None = None
) -> Dataset:
    """Separable clouds, one per class around the same centres for every seed; `only` keeps the device to some."""
    centres = 2 * seeds.stream(0, "centres").standard_normal((classes, features))
    rng = seeds.stream(seed, "samples")
    y = rng.choice(np.asarray(only if only is not None else range(classes)), samples).astype(np.int64)
    x = centres[y] + rng.standard_normal((samples, features))
    return Dataset(x.astype(np.float32), y, classes)


def nothing(data: Dataset) -> Dataset:
    """No samples, of the same shape: a coordinator without public data."""
    return data.take(np.arange(0))


def site(model: Model | None = None, data: Dataset | None = None, seed: int = 0, loss: Loss = cross_entropy) -> Site:
    """A site with its own random stream; a linear model on three clouds unless told otherwise."""
    data = dataset(seed=seed) if data is None else data
    model = Linear(int(np.prod(data.shape)), max(data.classes, 1)) if model is None else model
    return Site(model, data, seeds.stream(seed, 1, "toy"), loss)


def numeric_gradient(f: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    """Central differences, entry by entry; give it float64."""
    g = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        g[i] = (f(up) - f(down)) / (2 * step)
    return g


def _rows(x: Array, w: Vector) -> Array:
    return x.reshape(len(x), -1).astype(w.dtype)
