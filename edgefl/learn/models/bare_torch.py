"""Descent as one writes it in torch on an afternoon: what we are measured against."""

import torch
from torch import Tensor, nn

from edgefl.learn.data.dataset import Dataset


def descended(module: nn.Module, data: Dataset, batch: int, lr: float, steps: int) -> None:
    """Take this number of steps of plain descent, pass after pass over the data."""
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    descent = torch.optim.SGD(module.parameters(), lr=lr)
    for _ in range(0, steps, -(-len(x) // batch)):
        for rows in torch.split(torch.randperm(len(x)), batch):
            step(module, descent, x[rows], y[rows])


def step(module: nn.Module, descent: torch.optim.SGD, x: Tensor, y: Tensor) -> None:
    """One step on one batch."""
    descent.zero_grad()
    torch.autograd.backward(nn.functional.cross_entropy(module(x), y))
    descent.step()
