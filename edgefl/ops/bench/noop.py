"""Training that costs nothing: what is left of a round is the network and us."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import STRICT, Site, Stage, Task, Update
from edgefl.learn.data.dataset import Dataset

NOTHING = Dataset(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), 1)


@dataclass(frozen=True, config=STRICT)
class Noop:
    """Every device answers with ones, so after r rounds every parameter must be r."""

    name: Literal["still"] = "still"

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        return {}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:  # noqa: ARG002
        return Update(_ones(len(task.params)), 1.0, 1), state

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)


class Blank:
    """A model with this number of parameters that is never called."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def logits(self, w: Vector, x: Array) -> Array:  # noqa: ARG002
        return np.zeros((len(x), 1), np.float32)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        return self.logits(w, x), lambda _: np.zeros_like(w)

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:  # noqa: ARG002
        return np.zeros_like(x)

    def tensors(self, w: Vector) -> dict[str, Array]:
        return self.layout.layers(w)


def register() -> None:
    """Let this process know `Still` by its name: a run file never may."""
    registry.algorithm_registry()["still"] = Noop


@cache
def _ones(size: int) -> Vector:
    return np.ones(size, np.float32)
