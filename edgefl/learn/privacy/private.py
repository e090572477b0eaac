"""What an algorithm with a private version has."""

from typing import Protocol, TypeGuard, runtime_checkable

from edgefl.base.vector import Layout
from edgefl.learn.privacy.noise import Mechanism, Price


@runtime_checkable
class Private(Protocol):
    """An algorithm that can be made private: the run file's [privacy] becomes its field of that name."""

    @property
    def privacy(self) -> Mechanism | None:
        """How, if it is."""
        ...

    @property
    def mu(self) -> float:
        """The pull to the received model, which some proofs need."""
        ...

    def price(self, round: int, samples: int, layout: Layout) -> Price | None:
        """What a device must count when it has computed this round's update; None where that costs nothing."""
        ...


def is_private(algorithm: object) -> TypeGuard[Private]:
    """Whether it has a private version."""
    return isinstance(algorithm, Private)
