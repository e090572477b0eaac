"""What a selection is: the order in which devices are asked, from what the coordinator knows of each.

It is pure: the same candidates, seed and draw give the same order on every machine. So loop, emulator and coordinator
ask the same devices, and so does a coordinator that reads its journal after a restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

Kind: TypeAlias = Literal["mean", "rms"]  # of a loss over samples: their mean, or the root of their mean square


@dataclass(frozen=True)  # without slots: one is made for every answer (edgefl/base/records.py)
class Candidate:
    """What is known of a device when a draw is made."""

    id: str
    samples: int = 0  # as it says
    seconds_per_step: float | None = None  # as it measured last; None until it has answered, and in a plain loop
    counted: int = 0  # the last round its answer was merged in; 0: none yet
    failures: int = 0  # rounds in a row that were closed without its answer, though it was asked
    seconds: float | None = None  # that its last work took by its own clock; None as above
    loss: float | None = None  # of the model it was last asked with, on its own data; see `LossBasedSelection`


class Selection(Protocol):
    """A way to choose; its fields are its parameters, from the table [selection] of a run file."""

    @property
    def name(self) -> str: ...

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        """The ids of the candidates, whom to ask first first: a round takes as many as it needs, spares are next.

        The draw is the round's own number, unless an algorithm keeps its devices for several rounds. Candidates come
        sorted by id; who is left out is not asked.
        """
        ...


@runtime_checkable
class LossBasedSelection(Protocol):
    """A selection that looks at losses: `loss` says which one devices are asked for, with every model."""

    @property
    def loss(self) -> Kind: ...


@runtime_checkable
class BySize(Protocol):
    """A selection that asks devices the more often the more samples they have, if `by_samples`.

    Its papers average the answers uniformly: a mean by samples would count them a second time.
    """

    @property
    def by_samples(self) -> bool: ...


def drawn(selection: Selection, draw: int, seed: int, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """The order of a draw, if it is one."""
    order = tuple(selection.order(draw, seed, candidates))
    if len(set(order)) != len(order) or not {one.id for one in candidates}.issuperset(order):
        raise ValueError(f"selection '{selection.name}' names a device twice, or one that is no candidate: {order}")
    return order
