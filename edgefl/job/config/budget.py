"""The `[budget]` table of a run file: what a simulated run may spend. Its rounds are `run.rounds`."""

from typing import Annotated

from pydantic import BaseModel, Field

from edgefl.job.config.strict import STRICT


class BudgetSection(BaseModel):
    """Simulation only: a run ends with the round that has spent one of these, over all devices together."""

    model_config = STRICT

    megabytes: Annotated[float, Field(gt=0)] | None = None  # sent, up and down
    seconds: Annotated[float, Field(gt=0)] | None = None  # on the virtual clock of an emulated fleet
    joules: Annotated[float, Field(gt=0)] | None = None  # by the watts that device profiles assume

    @property
    def needs_a_clock(self) -> bool:
        """Return whether the budget needs the virtual clock of an emulated fleet."""
        return self.seconds is not None or self.joules is not None

    def spent(self, sent: int, seconds: float = 0.0, joules: float = 0.0) -> str:
        """Return which part is spent after these bytes, virtual seconds and joules; empty if none is."""
        if self.megabytes is not None and sent >= self.megabytes * 1e6:
            return f"the budget of {self.megabytes:g} MB is spent"
        if self.seconds is not None and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} virtual seconds is spent"
        if self.joules is not None and joules >= self.joules:
            return f"the budget of {self.joules:g} J is spent"
        return ""
