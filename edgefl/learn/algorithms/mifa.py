"""MIFA: the coordinator remembers every device's last update and averages over all of them (Gu et al., 2021).

MIFAM feeds the same mean into the coordinator's momentum.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import State
from edgefl.learn.aggregation import Mean, Momentum
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Traits
from edgefl.learn.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MIFA(LocalTraining):
    """Local descent, then the mean of the newest update of every device of the fleet, zero for those not yet seen."""

    name: Literal["mifa"] = "mifa"
    weights: Literal["uniform"] = "uniform"  # every device has its row, and every row counts the same

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), UpdateTable()


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MIFAM(LocalTraining):
    """MIFA with momentum: m = beta m + mean of the table, and the step is rate times m."""

    name: Literal["mifam"] = "mifam"
    weights: Literal["uniform"] = "uniform"
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rate: Annotated[float, Field(gt=0)] = 1.0

    def stages(self) -> tuple[Stage, ...]:
        return Mean(), UpdateTable(), Momentum(beta=self.beta, rate=self.rate)


@dataclass(frozen=True, config=STRICT)
class UpdateTable:
    """The step is the mean over the whole fleet of each device's newest update.

    Statistics keep the step they have, the mean of who answered: a zero for an unseen device would falsify them. A
    late update is newer than the device's row, so it overwrites it too, unless a fresh one came in the same round.
    """

    name: Literal["table"] = "table"

    traits = Traits(
        individual=True,
        one_model="it keeps every device's newest update whatever its age, in place of weighing it",
        makes_step=True,
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, real = site.model.layout.trainable, draft.step.dtype.type
        rows = {str(device): state[f"row.{i}"] for i, device in enumerate(state.get("members", ()))}
        rows |= {device: np.array(update.delta[:k]) for device, update in {**draft.late, **draft.updates}.items()}
        share = real(1 / max(draft.population, len(rows), 1))
        step = draft.step.copy()
        step[:k] = 0
        for device in sorted(rows):  # summed anew every round, as Mean does: a running sum would drift
            step[:k] += share * rows[device]
        kept = {f"row.{i}": rows[device] for i, device in enumerate(sorted(rows))}
        return replace(draft, step=step), {"members": np.array(sorted(rows), dtype=np.str_), **kept}
