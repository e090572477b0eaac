"""Federated averaging as one writes it in torch on an afternoon: what the simulator is measured against."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.bare_torch import step
from edgefl.learn.models.torch_backend import use_threads


class BareLoop:
    """A global module, a local copy, and SGD over each device's tensors, one device after another on one thread."""

    def __init__(self, module: nn.Module, devices: Sequence[Dataset], *, cohort: int, batch: int, lr: float) -> None:
        self._global, self._local = module, deepcopy(module)
        self._devices = [(torch.from_numpy(data.x), torch.from_numpy(data.y)) for data in devices]
        self._cohort, self._batch, self._lr = cohort, batch, lr

    def play(self, rounds: int) -> None:
        """Play the rounds: each device of the cohort trains for one epoch, and the mean is the next model."""
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
            step(self._local, descent, x[rows], y[rows])
        return {name: tensor.clone() for name, tensor in self._local.state_dict().items()}
