"""Networks that a user hands over as objects. Importable without torch: where such an object is, torch is loaded."""

import sys
from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union

from edgefl.base.vector import Array
from edgefl.learn.models.copies import copied
from edgefl.learn.models.torch_imports import door

if TYPE_CHECKING:
    from torch import Tensor, nn

# A name as in a run file, a network with weights of its own, or what makes one: from nothing, or from the shape of a
# sample and the number of outputs.
ModelLike: TypeAlias = Union[str, "nn.Module", Callable[..., "nn.Module"]]
StateDict: TypeAlias = "dict[str, Tensor]"  # as `load_state_dict` takes it


def is_module(thing: object) -> "TypeGuard[nn.Module]":
    """Whether it is a network, with weights of its own."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def copies(module: "nn.Module") -> "Callable[[], nn.Module]":
    """Return a factory of networks with the weights that this one has now; later changes of it do not count."""
    now = copied(module)
    return lambda: copied(now)


def needs_nothing(factory: Callable[..., Any]) -> bool:
    """Whether a class or function makes its network without being told anything."""
    try:
        signature(factory).bind()
    except (TypeError, ValueError):  # ValueError: written in C, without a signature
        return False
    return True


def called_plainly(factory: "Callable[[], nn.Module]") -> "Callable[[], nn.Module]":
    """Wrap the factory so that shape arguments are ignored."""

    def plain() -> "nn.Module":
        return factory()

    return plain


def state_dict(tensors: Mapping[str, Array]) -> StateDict:
    """What `load_state_dict` of the network takes."""
    tensor = door("torch_backend").torch.tensor  # a copy: further training changes nothing here
    return {name: tensor(array) for name, array in tensors.items()}
