"""A perceptron with one hidden layer in plain numpy: without a runtime's overhead a thousand runs take minutes."""

from collections.abc import Callable
from math import prod, sqrt

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array, Layout, Vector


class SmallMlp:
    """z = max(0, x A + a) B + b, for samples of any shape."""

    def __init__(self, sample: tuple[int, ...], classes: int, hidden: int = 32) -> None:
        shapes = (prod(sample), hidden), (hidden,), (hidden, classes), (classes,)
        self.layout = Layout(("A", "a", "B", "b"), shapes)

    def start(self, seed: int) -> Vector:
        """Weights to begin with."""
        rng = seeds.stream(seed, "model")
        w = np.zeros(self.layout.size, np.float32)
        for part in self.layout.layers(w).values():
            if part.ndim == 2:
                part[:] = rng.normal(0, 1 / sqrt(len(part)), part.shape)
        return w

    def logits(self, w: Vector, x: Array) -> Array:
        return self.vjp(w, x)[0]

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        rows, p = x.reshape(len(x), -1), self.layout.layers(w)
        hidden = np.maximum(rows @ p["A"] + p["a"], 0)

        def pullback(dz: Array) -> Vector:
            dh = np.where(hidden > 0, dz @ p["B"].T, np.float32(0))
            parts = rows.T @ dh, dh.sum(axis=0), hidden.T @ dz, dz.sum(axis=0)
            return np.concatenate([part.reshape(-1) for part in parts])

        return hidden @ p["B"] + p["b"], pullback

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        p = self.layout.layers(w)
        hidden = x.reshape(len(x), -1) @ p["A"] + p["a"]
        gradient: Array = (np.where(hidden > 0, dz @ p["B"].T, np.float32(0)) @ p["A"].T).reshape(x.shape)
        return gradient

    def tensors(self, w: Vector) -> dict[str, Array]:
        return dict(self.layout.layers(w))
