"""LoRA: a few small matrices are trained beside large ones that stay as they are (Hu et al., 2021).

A weight W of a frozen network becomes W + alpha / rank * B A, where A has `rank` rows and B as many columns. B begins
at zero, so the network begins as it was. What is trained is all that travels in a round; the rest goes to each device
once, with the graphs.
"""

from fnmatch import fnmatchcase
from math import sqrt
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from edgefl.base.errors import ConfigError


def lora(
    module: nn.Module, *, rank: int = 4, alpha: float = 8.0, layers: str = "*", train: str | tuple[str, ...] = ()
) -> nn.Module:
    """The module itself, frozen, with adapters in those `layers` whose name fits the pattern.

    A layer is an nn.Linear, an nn.MultiheadAttention (all its projections), or another one with a matrix for a weight
    that is no embedding. `train` are patterns of parameters that stay trainable in full: a new head, say.
    """
    if rank < 1:
        raise ConfigError(f"lora: rank = {rank} is less than 1")
    named = list(module.named_modules())
    inside = _children(module, nn.MultiheadAttention)  # adapted with it
    fitting = [(name, layer) for name, layer in named if fnmatchcase(name, layers) and _fits(layer)]
    chosen = [(name, layer) for name, layer in fitting if layer not in inside]
    patterns = (train,) if isinstance(train, str) else train
    if not chosen:
        raise ConfigError(f"lora: no layer with a weight matrix fits '{layers}'; {_some(named)}")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in module.named_parameters()):
            raise ConfigError(f"lora: train = '{pattern}' fits no parameter of {type(module).__name__}")
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))
    read = _children(module, nn.TransformerEncoderLayer)  # whose weights it reads, in evaluation mode, without a call
    for name, layer in chosen:
        _adapt(module, name, layer, rank, alpha / rank, called=layer not in read)
    return module


def merged(module: nn.Module) -> nn.Module:
    """The module itself, with every adapter taken into the weight that it belongs to."""
    for name, layer in list(module.named_modules()):
        if isinstance(layer, AdaptedLinear):
            _put(module, name, layer.plain())
        elif parametrize.is_parametrized(layer):
            for weight, by in list(cast("Any", layer.parametrizations).items()):
                if any(isinstance(one, LowRank) for one in by):
                    parametrize.remove_parametrizations(layer, weight, leave_parametrized=True)
    return module


class LowRank(nn.Module):
    """What is added to a matrix: the product of two thin ones."""

    def __init__(self, rows: int, columns: int, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.a = nn.Parameter(torch.empty(rank, columns).uniform_(-1 / sqrt(columns), 1 / sqrt(columns)))
        self.b = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.b @ self.a)


class AdaptedLinear(nn.Module):
    """A linear layer whose adapter has a way of its own, so that no gradient as large as the weight is computed."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.lora = LowRank(linear.out_features, linear.in_features, rank, scale)

    def forward(self, x: Tensor) -> Tensor:
        down = nn.functional.linear(x, self.lora.a)
        return (
            nn.functional.linear(x, self.weight, self.bias) + nn.functional.linear(down, self.lora.b) * self.lora.scale
        )

    def plain(self) -> nn.Linear:
        """The linear layer that does the same."""
        rows, columns = self.weight.shape
        linear = nn.Linear(columns, rows, bias=self.bias is not None)
        linear.weight = nn.Parameter(self.lora(self.weight).detach())
        if self.bias is not None:
            linear.bias = self.bias
        return linear


def _fits(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    matrix = isinstance(weight, nn.Parameter) and weight.ndim == 2 and not isinstance(layer, nn.Embedding)
    return matrix or isinstance(layer, nn.MultiheadAttention)


def _children(module: nn.Module, kind: type[nn.Module]) -> set[nn.Module]:
    return {child for layer in module.modules() if isinstance(layer, kind) for child in layer.children()}


def _adapt(module: nn.Module, name: str, layer: nn.Module, rank: int, scale: float, *, called: bool) -> None:
    if type(layer) is nn.Linear and name and called:
        return _put(module, name, AdaptedLinear(layer, rank, scale))
    if isinstance(layer, nn.MultiheadAttention):
        for weight in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(layer, weight) is not None:
                _beside(layer, weight, rank, scale)
        return _beside(layer.out_proj, "weight", rank, scale)
    return _beside(layer, "weight", rank, scale)


def _beside(layer: nn.Module, weight: str, rank: int, scale: float) -> None:
    """An adapter wherever the weight is read: some layers hand it to functions of torch's and are never called."""
    rows, columns = getattr(layer, weight).shape
    parametrize.register_parametrization(layer, weight, LowRank(rows, columns, rank, scale))


def _put(module: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, layer)


def _some(named: list[tuple[str, nn.Module]]) -> str:
    names = [name for name, layer in named if name and _fits(layer)][:4]
    return f"there are {', '.join(names)} and others" if names else "it has none at all"
