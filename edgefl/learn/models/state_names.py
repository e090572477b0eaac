"""A network's tensors under the names of its `state_dict`, with what its flat vector leaves out.

A back-end that knows the layout alone has neither frozen parameters nor counters, nor the second name of a tied tensor;
with this it writes the same checkpoint as torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from edgefl.base.vector import Array, Layout, State, Vector


@dataclass(frozen=True, slots=True)
class StateNames:
    """Of one network. `learnt` tells which entry of the layout stands under a name, `fixed` what never changes."""

    learnt: Mapping[str, str]
    fixed: State = field(default_factory=dict)

    @classmethod
    def of(cls, layout: Layout) -> "StateNames":
        """Of a network that has nothing but its layout."""
        return cls({name: name for name in layout.names})

    def tensors(self, layout: Layout, w: Vector) -> dict[str, Array]:
        """The network with these weights."""
        learnt = layout.layers(w)
        return {name: learnt[entry] for name, entry in self.learnt.items()} | self.fixed


@runtime_checkable
class Named(Protocol):
    """A model that knows what its `state_dict` calls things."""

    def state_names(self) -> StateNames: ...
