"""The networks whose training is measured, and how a device trains them: light, for a process that is weighed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefl.base.vector import Vector
from edgefl.learn.contract import Budget, Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.base import Model
from edgefl.learn.models.rule import Rule, StepPlan
from edgefl.learn.training.descent import descend

RATE, PLAN = 1e-3, StepPlan("cross_entropy")
STEPS = 20  # of a trainee, the first of which ends its cold start


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo on samples like those it is made for; `bar` is the largest ratio to torch's time."""

    network: str
    sample: tuple[int, ...]
    bar: float
    classes: int = 10
    batch: int = 32
    calls: int = 32  # steps per turn

    @property
    def tokens(self) -> bool:
        return len(self.sample) == 1


CASES = (
    Case("softmax", (1, 28, 28), 0.5, calls=192),
    Case("mlp", (1, 28, 28), 0.7, calls=96),
    Case("lenet5", (1, 28, 28), 0.7, calls=48),
    Case("cnn", (1, 28, 28), 1.0, calls=5),
    Case("sensor_cnn", (9, 128), 0.8, 6),
    Case("resnet9", (3, 32, 32), 1.0, batch=16, calls=1),
    Case("lstm", (32,), 1.0, 4),
    Case("transformer", (32,), 0.8, 4),
    Case("text", (32,), 0.5, 4),
)


def samples(case: Case) -> Dataset:
    """Made-up samples of a device, enough for a turn's mini-batches or for 16 of them."""
    rng, count = np.random.default_rng(0), case.batch * min(case.calls, 16)
    x = rng.integers(0, 4096, (count, *case.sample)) if case.tokens else rng.normal(size=(count, *case.sample))
    return Dataset(x if case.tokens else x.astype(np.float32), rng.integers(0, case.classes, count), case.classes)


def training(model: Model, w: Vector, data: Dataset, batch: int) -> Callable[[int], Vector]:
    """Take this number of steps of plain descent, as a device takes them."""

    def train(steps: int) -> Vector:
        site = Site(model, data, np.random.default_rng(1))
        return descend(Rule(lr=RATE), w, site, Budget(), batch=batch, batches=steps).params

    return train
