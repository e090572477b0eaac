"""The inside of a torch network: a second door to torch, opened by blocks.py for those that need it.

A wrapper around the module keeps its parameters in their order, so the flat vector is the same one.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Layout, Vector
from edgefl.learn.models.base import Model
from edgefl.learn.models.copies import copied
from edgefl.learn.models.torch_backend import TorchModel, tensors_of


class TorchInside:
    """Views into a `TorchModel`, for `who`."""

    def __init__(self, who: str) -> None:
        self.who = who

    def featured(self, model: Model) -> Model:
        """The outputs, and beside them the input of the last linear layer."""
        torch_model, opened = self._open(model)
        heads = [name for name, layer in opened.named_modules() if isinstance(layer, nn.Linear)]
        if not heads:
            raise ConfigError(
                f"{self.who} reads the input of the last linear layer; {type(opened).__name__} of task.model has none"
            )
        return _wrap(torch_model, Featured(opened, heads[-1]))

    def hybrid(self, model: Model, frozen: Vector) -> Model:
        """The outputs, and beside them those of each path."""
        torch_model, opened = self._open(model)
        if not isinstance(opened, nn.Sequential) or len(cuts(opened)) < 1:
            raise ConfigError(
                f"{self.who} needs a network that is one nn.Sequential of at least two layers with weights, "
                f"and task.model is a {type(opened).__name__}; choose another, e.g. 'cnn'"
            )
        return _wrap(torch_model, Hybrid(opened, loaded(opened, model.layout, frozen)))

    @staticmethod
    def _open(model: Model) -> tuple[TorchModel, nn.Module]:
        if not isinstance(model, TorchModel):
            raise TypeError(f"{type(model).__name__} is no TorchModel")
        return model, model._module  # noqa: SLF001 - the same back-end in a second file


def _wrap(model: TorchModel, module: nn.Module) -> Model:
    first = next(module.parameters())
    return TorchModel(module, threads=model.threads, device=str(first.device))


class Featured(nn.Module):
    """A network that also gives what its layer `head` was given."""

    def __init__(self, net: nn.Module, head: str) -> None:
        super().__init__()
        self.net, self.head = net, head

    def forward(self, x: Tensor) -> Tensor:
        caught: list[Tensor] = []
        hook = self.net.get_submodule(self.head).register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        try:
            z = self.net(x)
        finally:
            hook.remove()
        return torch.cat([z, caught[-1].flatten(1)], dim=1)


class Hybrid(nn.Module):
    """A sequence of blocks, and the ways that leave it after each block through a frozen copy of the rest."""

    def __init__(self, net: nn.Sequential, frozen: nn.Sequential) -> None:
        super().__init__()
        self.net = net
        self.frozen = (frozen,)  # in a tuple: no child of ours, so neither trained nor part of the vector

    def forward(self, x: Tensor) -> Tensor:
        outputs, at = [], cuts(self.net)
        for begin, end in pairwise([0, *at]):
            x = self.net[begin:end](x)
            outputs.append(self.frozen[0][end:](x))
        return torch.cat([self.net[at[-1] :](x), *outputs], dim=1)


def cuts(net: nn.Sequential) -> list[int]:
    """Where the blocks after the first begin: at every layer with a weight matrix, so a norm stays with its layer."""
    owners = [i for i, layer in enumerate(net) if any(p.ndim > 1 for p in layer.parameters())]
    return owners[1:]


def loaded(net: nn.Sequential, layout: Layout, w: Vector) -> nn.Sequential:
    """A copy of the network in evaluation mode, with these weights for good."""
    copy = copied(net).eval()
    params, statistics = tensors_of(copy)
    with torch.no_grad():
        for tensor, values in zip([*params.values(), *statistics.values()], layout.layers(w).values(), strict=True):
            tensor.copy_(torch.tensor(values, device=tensor.device))
    for parameter in copy.parameters():
        parameter.requires_grad_(False)
    return copy
