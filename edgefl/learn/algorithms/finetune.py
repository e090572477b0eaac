"""Fine-tuning at the coordinator: after the mean, a few epochs on the public labels.

The plainest use of labelled public data, and so the baseline for Flashback, which trains on the same labels.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.contract import STRICT, Draft, Site, Traits
from edgefl.learn.training.local import gradient
from edgefl.learn.training.public import PublicTraining, split


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Finetune(PublicTraining):
    """Descent on the training part of the public data: `max_epochs` and no stopping, unless `patience` is set."""

    name: Literal["finetune"] = "finetune"
    max_epochs: Annotated[int, Field(ge=0)] = 3
    patience: Annotated[int, Field(ge=1)] | None = None

    traits = Traits(individual=False, nests=True, buffered=True, without_devices=True)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        public, sgd = split(site, self.name), self.sgd(site)

        def step(w: Vector, rows: Array) -> Vector:
            return sgd(w, gradient(site, w, public.training.x[rows], public.training.y[rows]))

        polished = self.polish(draft.params + draft.step, public, site, step)
        return replace(draft, step=polished.params - draft.params), {"epochs": np.array(polished.check)}
