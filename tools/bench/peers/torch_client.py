"""A client's epoch in plain torch, as most people would write it: the training of other frameworks' clients in our
benches.

It needs torch alone: other interpreters than ours run this file (`flower_loop.py`).
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
SAMPLES, BATCH, RATE = 600, 32, 0.05
torch.set_num_threads(1)


class TorchClient:
    """A perceptron with two hidden layers of 200, and the made-up samples of one device."""

    samples = SAMPLES

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.x = torch.from_numpy(rng.random((SAMPLES, 784), np.float32))
        self.y = torch.from_numpy(rng.integers(0, 10, SAMPLES))
        self.model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
        self.loss = nn.CrossEntropyLoss()

    def epoch(self, weights: Iterable[Array]) -> list[Array]:
        """The weights after one pass over the samples in batches, which begins with these."""
        with torch.no_grad():
            for parameter, weight in zip(self.model.parameters(), weights, strict=True):
                parameter.copy_(torch.from_numpy(weight))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        for rows in torch.split(torch.randperm(SAMPLES), BATCH):
            optimizer.zero_grad()
            self.loss(self.model(self.x[rows]), self.y[rows]).backward()
            optimizer.step()
        return [parameter.detach().numpy() for parameter in self.model.parameters()]
