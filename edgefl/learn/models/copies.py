"""Copies of networks, also of those that keep a tensor computed from their weights. Importable without torch.

Torch copies no tensor that has a history. `torch.nn.utils.weight_norm` and `spectral_norm` keep one, the weight of the
layer, and compute it anew before every pass: there its value is enough. Another one would stay what it was while the
weights move on, and is refused.
"""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

from edgefl.base.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

N = TypeVar("N", bound="nn.Module")
RECOMPUTED = {"torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm"}


def copied(module: N) -> N:
    """A network like this one, with weights of its own."""
    check_kept(module)
    kept = (tensor for layer in module.modules() for tensor in vars(layer).values() if _has_history(tensor))
    return deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in kept})


def check_kept(module: "nn.Module") -> None:
    """Refuse a network that keeps a computed tensor which nothing computes anew."""
    kind = type(module).__name__
    for name, layer in module.named_modules():
        hooks = layer._forward_pre_hooks.values()  # noqa: SLF001 - torch has no public way to see them
        anew = {hook.name for hook in hooks if type(hook).__module__ in RECOMPUTED}
        if any(_has_history(tensor) and word not in anew for word, tensor in vars(layer).items()):
            raise ConfigError(
                f"model {kind}: {name or kind} keeps a tensor computed from its weights, which no copy can have;"
                " compute it in forward, or use torch.nn.utils.parametrize"
            )


def _has_history(value: Any) -> bool:
    """Whether it is a tensor that was computed (Any: an attribute of a layer may be anything)."""
    return getattr(value, "is_leaf", True) is False
