"""The smallest model there is, in plain numpy, and a site for it."""

from collections.abc import Callable

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.contract import Site
from edgefl.learn.data.dataset import Dataset


class Tiny:
    """z = x W: two features, two classes, four numbers; with `statistics` a fifth one that counts the batches."""

    def __init__(self, statistics: bool = False) -> None:
        self.statistics = statistics
        self._layout = Layout(("w", "seen"), ((2, 2), ()), 1) if statistics else Layout(("w",), ((2, 2),))

    @property
    def layout(self) -> Layout:
        return self._layout

    def logits(self, w: Vector, x: Array) -> Array:
        return x @ w[:4].reshape(2, 2)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        def pullback(dz: Array) -> Vector:
            g = (x.T @ dz).reshape(-1)
            counted = np.full(int(self.statistics), -1, g.dtype)  # old minus new
            return np.concatenate([g, counted])

        return self.logits(w, x), pullback

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        return dz @ w[:4].reshape(2, 2).T


def clouds(samples: int = 12, seed: int = 0) -> Dataset:
    """Two clouds that a line can tell apart."""
    rng = seeds.stream(seed, "clouds")
    y = np.arange(samples) % 2
    x = np.array([[2.0, 0.0], [0.0, 2.0]])[y] + 0.5 * rng.standard_normal((samples, 2))
    return Dataset(x.astype(np.float32), y, 2)


def site(data: Dataset | None = None, statistics: bool = False) -> Site:
    return Site(Tiny(statistics), clouds() if data is None else data, seeds.stream(1, 1, "tiny"))
