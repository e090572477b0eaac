"""Two inputs and two outputs: a picture and a few words in, the kind of the thing and its weight out."""

import numpy as np
import torch
from torch import nn


def data():
    """Pictures (1, 6, 6) and three words each, of 200 things; what kind they are (0 to 2), and their weight."""
    rng = np.random.default_rng(0)
    kind, size = rng.integers(0, 3, 200), rng.random(200)
    picture = rng.normal(0, 0.6, (200, 1, 6, 6))
    for i in range(200):
        picture[i, 0, 2 * kind[i] : 2 * kind[i] + 2] += size[i] + 0.5
    words = np.where(rng.random((200, 3)) < 0.5, 4 * (kind % 2)[:, None], 0) + rng.integers(0, 4, (200, 3))
    weight = 2 * size + (kind == 2)
    x = {"picture": picture.astype(np.float32), "words": words.astype(np.int64)}
    return x, {"kind": kind.astype(np.int64), "weight": weight.astype(np.float32)}


class Network(nn.Module):
    """`forward` takes the inputs by their names, and gives the outputs by theirs."""

    def __init__(self):
        super().__init__()
        self.look = nn.Linear(36, 16)
        self.read = nn.Embedding(8, 4)
        self.kind = nn.Linear(28, 3)
        self.weight = nn.Linear(28, 1)

    def forward(self, picture, words):
        both = torch.cat([torch.relu(self.look(picture.flatten(1))), self.read(words).flatten(1)], dim=1)
        return {"kind": self.kind(both), "weight": self.weight(both)}
