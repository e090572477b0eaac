"""Which tensors of a network belong to layers that normalise: by the kind of their module, not by names or shapes."""

import re

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.base.vector import Layout

KINDS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)  # _NormBase: batch and instance normalisation of all sizes
# A class of its own: LlamaRMSNorm, RMSNormGated, MyNorm2d; not Normalize, LogNormal, or a norm of weights.
CALLED = re.compile(r"(?<!weight)(?<!spectral)norm(?!al(?!i[sz]ation))", re.IGNORECASE)


def normalises(module: nn.Module) -> bool:
    """Return whether this module is a norm layer: one of torch's, of a class derived from them, or called so.

    Torch has other classes that are called so (`_SpectralNorm` of a parametrisation), which normalise weights.
    """
    own = (kind for kind in type(module).__mro__ if not kind.__module__.startswith("torch."))
    return isinstance(module, KINDS) or any(CALLED.search(kind.__name__) for kind in own)


def norm_tensors(module: nn.Module, layout: Layout) -> tuple[str, ...]:
    """Return the names of the tensors that norm layers hold themselves: weights, biases and statistics."""
    held = {
        id(tensor)
        for layer in module.modules()
        if normalises(layer)
        for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
    }
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return tuple(name for name in layout.names if id(tensors[name]) in held)
