"""Descent and federated averaging as one writes them in torch on an afternoon: what we are measured against."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from edgefl.data.dataset import Dataset
from edgefl.models.torch_backend import use_threads


def descended(module: nn.Module, data: Dataset, batch: int, lr: float, steps: int) -> None:
    """So many steps of plain descent, pass after pass over the data."""
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    descent = torch.optim.SGD(module.parameters(), lr=lr)
    for _ in range(0, steps, -(-len(x) // batch)):
        for rows in torch.split(torch.randperm(len(x)), batch):
            _step(module, descent, x[rows], y[rows])


def _step(module: nn.Module, descent: torch.optim.SGD, x: Tensor, y: Tensor) -> None:
    descent.zero_grad()
    torch.autograd.backward(nn.functional.cross_entropy(module(x), y))
    descent.step()


class BareLoop:
    """A global module, a local copy, and SGD over each device's tensors, one device after another on one thread."""

    def __init__(self, module: nn.Module, devices: Sequence[Dataset], *, cohort: int, batch: int, lr: float) -> None:
        self._global, self._local = module, deepcopy(module)
        self._devices = [(torch.from_numpy(data.x), torch.from_numpy(data.y)) for data in devices]
        self._cohort, self._batch, self._lr = cohort, batch, lr

    def play(self, rounds: int) -> None:
        """So many rounds: everybody of the cohort trains for one epoch, and the mean is the next model."""
        use_threads(1)
        for _ in range(rounds):
            answers = [self._trained(*self._devices[i]) for i in torch.randperm(len(self._devices))[: self._cohort]]
            with torch.no_grad():
                for name, place in self._global.state_dict().items():
                    place.copy_(torch.stack([answer[name] for answer in answers]).mean(dim=0))

    def _trained(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        self._local.load_state_dict(self._global.state_dict())
        descent = torch.optim.SGD(self._local.parameters(), lr=self._lr)
        for rows in torch.split(torch.randperm(len(x)), self._batch):
            _step(self._local, descent, x[rows], y[rows])
        return {name: tensor.clone() for name, tensor in self._local.state_dict().items()}
