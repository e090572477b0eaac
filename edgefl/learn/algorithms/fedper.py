"""FedPer: the last layers are each device's own, all others are averaged (Arivazhagan et al., 2019)."""

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from edgefl.base.vector import Layout
from edgefl.learn.algorithms.private_parts import PrivateParts, last_layer
from edgefl.learn.contract import STRICT


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedPer(PrivateParts):
    """Head and body are trained together, and the head stays: the last layer, unless `private` names another."""

    name: Literal["fedper"] = "fedper"

    keeps: ClassVar[str] = "the head"

    def chosen(self, layout: Layout) -> tuple[str, ...]:
        return last_layer(layout)
