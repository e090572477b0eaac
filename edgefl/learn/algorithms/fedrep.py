"""FedRep: first the head with the body held fast, then the body with the head held fast (Collins et al., 2021)."""

from dataclasses import replace
from math import ceil
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, Layout, State
from edgefl.learn.algorithms.private_parts import PrivateParts, last_layer
from edgefl.learn.contract import STRICT, Budget, Site, Task, Traits, Update
from edgefl.learn.training.local import Step, gradient, lone, steps_asked, walk


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedRep(PrivateParts):
    """`head_epochs` passes for the head, which stays, and then `epochs` for the body, which is averaged."""

    name: Literal["fedrep"] = "fedrep"
    plain_steps: ClassVar[bool] = False  # each leaves a part of the weights where it is
    head_epochs: Annotated[float, Field(gt=0)] = 5

    keeps: ClassVar[str] = "the head"
    traits = Traits(buffered=True, any_optimiser=True)

    def chosen(self, layout: Layout) -> tuple[str, ...]:
        return last_layer(layout)

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        layout = site.model.layout
        head, begun = self.mask(layout), replace(task, params=self.own(task.params, state, layout))
        steps, move = self._head_steps(task, site), self.moving(head, site)
        fitted = walk(begun.params, move, site, Budget(), batch=self.batch, batches=steps)
        walked = self.walk(replace(begun, params=fitted.params), site, self.moving(~head, site))
        return self.shared(begun, site, walked)

    def moving(self, part: Array, site: Site) -> Step:
        """Steps of these numbers alone, by an optimiser of their own."""
        sgd = self.sgd(site)
        return lambda w, x, y: np.where(part, sgd(w, gradient(site, w, x, y)), w)

    def _head_steps(self, task: Task, site: Site) -> int:
        """Fewer in the same measure as the budget leaves of the body's: what a device answers are those."""
        size, alone = len(site.data), lone(site)
        asked = steps_asked(size, self.batch, self.epochs, self.batches, Budget(), lone=alone)
        allowed = steps_asked(size, self.batch, self.epochs, self.batches, task.budget, lone=alone)
        return ceil(steps_asked(size, self.batch, self.head_epochs, None, Budget(), lone=alone) * allowed / asked)
