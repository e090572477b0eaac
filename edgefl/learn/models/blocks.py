"""Looking inside a network: its features, and its paths through blocks of another model. Importable without torch.

Both are given as a `Model` with the same weights and wider outputs, so one pullback serves for all of them.
"""

from importlib import import_module
from typing import Protocol, runtime_checkable

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Vector
from edgefl.learn.models.base import Model


@runtime_checkable
class Inside(Protocol):
    """What the torch back-end can tell about a network; a model that can tell it of itself is asked itself."""

    def featured(self, model: Model) -> Model:
        """The outputs, and beside them in the same row the input of the last linear layer."""
        ...

    def hybrid(self, model: Model, frozen: Vector) -> Model:
        """The outputs, and beside them those of each path: the first blocks, then the rest with weights `frozen`."""
        ...


def inside(model: Model, who: str) -> Inside:
    """The view into the network; `who` needs it and is refused on a back-end that has none."""
    if isinstance(model, Inside):
        return model
    if type(model).__module__ != "edgefl.learn.models.torch_backend":
        raise ConfigError(
            f"{who} looks inside the network, which only the torch back-end can, not {type(model).__name__}; "
            "set task.backend = 'torch' (from Python backend=\"torch\"), or choose another algorithm.name",
            free_of_data=True,
        )
    opened: Inside = import_module("edgefl.learn.models.torch_blocks").TorchInside(who)
    return opened
