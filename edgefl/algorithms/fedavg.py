"""FedAvg: local descent on every device, the mean at the coordinator (McMahan et al., 2017)."""

from typing import Literal

from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean
from edgefl.contract import STRICT, Stage
from edgefl.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvg(LocalTraining):
    """Local descent, then the mean."""

    name: Literal["fedavg"] = "fedavg"

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)
