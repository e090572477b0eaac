"""The `[privacy]` table of an agent file: what this device's data may cost, whatever a run asks for."""

from typing import Annotated

from pydantic import BaseModel, Field

from edgefl.job.config.strict import STRICT


class Allowance(BaseModel):
    """Without `epsilon` a device does what its coordinator's run says; with it, nothing leaves it without noise."""

    model_config = STRICT

    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # of all runs together; none: no limit
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-3  # of all runs together, where there is an epsilon
    updates: Annotated[int, Field(gt=0)] = 1000  # of all runs together: noise covers no times, however little they cost
