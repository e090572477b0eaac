"""The networks whose training is measured, and a step of each: light, because a process that is weighed imports it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefl.models.base import Model
from edgefl.vector import Array, Vector

STEPS = 20  # of a trainee, the first of which ends its cold start


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo on samples like those it is made for; `bar` is the largest ratio to torch."""

    network: str
    sample: tuple[int, ...]
    bar: float
    classes: int = 10
    batch: int = 32
    calls: int = 20  # steps per turn

    @property
    def tokens(self) -> bool:
        return len(self.sample) == 1


CASES = (
    Case("softmax", (1, 28, 28), 1.0, calls=200),
    Case("mlp", (1, 28, 28), 1.0, calls=100),
    Case("lenet5", (1, 28, 28), 1.0, calls=40),
    Case("cnn", (1, 28, 28), 1.2, calls=5),
    Case("sensor_cnn", (9, 128), 1.0, 6),
    Case("resnet9", (3, 32, 32), 1.2, batch=16, calls=1),
    Case("lstm", (32,), 1.2, 4),
    Case("transformer", (32,), 1.0, 4),
    Case("text", (32,), 1.0, 4),
)


def batch(case: Case) -> Array:
    """A made-up batch."""
    rng, shape = np.random.default_rng(0), (case.batch, *case.sample)
    return rng.integers(0, 4096, shape) if case.tokens else rng.normal(size=shape).astype(np.float32)


def stepper(model: Model, w: Vector, x: Array) -> Callable[[], Vector]:
    """One step: forward, and back from a made-up gradient."""

    def step() -> Vector:
        z, pullback = model.vjp(w, x)
        return pullback(z / len(x))

    return step
