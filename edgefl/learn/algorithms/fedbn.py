"""FedBN: norm layers are each device's own, all others are averaged (Li et al., 2021)."""

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from edgefl.base.vector import Layout
from edgefl.learn.algorithms.private_parts import PrivateParts
from edgefl.learn.contract import STRICT


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedBN(PrivateParts):
    """Norm layers stay, their statistics too; layers of your own that should stay are named in `private`."""

    name: Literal["fedbn"] = "fedbn"

    keeps: ClassVar[str] = "the norm layers"

    def chosen(self, layout: Layout) -> tuple[str, ...]:
        return layout.norms
