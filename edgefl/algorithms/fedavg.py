"""FedAvg: local descent on every device, the mean at the coordinator (McMahan et al., 2017)."""

from typing import Literal

from pydantic.dataclasses import dataclass

from edgefl.aggregation import Mean
from edgefl.algorithms.base import STRICT, Stage
from edgefl.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvg(LocalTraining):
    """Local descent, then the mean."""

    name: Literal["fedavg"] = "fedavg"

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(),)
