"""FedAvg: local descent on every device, the mean at the coordinator (McMahan et al., 2017)."""

from typing import Literal

from pydantic.dataclasses import dataclass

from edgefl.learn.contract import STRICT
from edgefl.learn.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAvg(LocalTraining):
    """Local descent, then the mean."""

    name: Literal["fedavg"] = "fedavg"
