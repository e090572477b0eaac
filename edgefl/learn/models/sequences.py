"""Networks for sequences: token ids (n, length), or windows of sensor readings (n, channels, length).

Attention is written out in matrix products and a softmax, which every exporter knows.
"""

from math import sqrt

import torch
from torch import Tensor, nn


class TokenMean(nn.Module):
    """The mean of the tokens' embeddings, and one linear layer."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.out(self.embedding(x).mean(1))
        return z


class Steps(nn.Module):
    """Turns a batch into (n, length, width): by embedding when there are no channels, else by a linear map."""

    def __init__(self, vocabulary: int, channels: int, width: int) -> None:
        super().__init__()
        self.tokens = channels == 0
        self.map: nn.Module = nn.Linear(channels, width) if channels else nn.Embedding(vocabulary, width)

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.map(x if self.tokens else x.transpose(1, 2))
        return steps


class Recurrent(nn.Module):
    """An LSTM whose last state decides."""

    def __init__(self, vocabulary: int, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.steps = Steps(vocabulary, channels, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.steps(x))
        z: Tensor = self.out(last[-1])
        return z


class Encoder(nn.Module):
    """One transformer layer: attention and a small perceptron, each after a norm and with a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        attention = torch.softmax(q @ k.transpose(-2, -1) / sqrt(width // self.heads), dim=-1)
        x = x + self.join((attention @ v).transpose(1, 2).reshape(n, length, width))
        out: Tensor = x + self.perceptron(x)
        return out


class Transformer(nn.Module):
    """Two encoder layers with learned positions; the mean over the sequence decides."""

    def __init__(self, vocabulary: int, channels: int, length: int, width: int, classes: int) -> None:
        super().__init__()
        self.steps = Steps(vocabulary, channels, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.Sequential(Encoder(width, 4), Encoder(width, 4))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.steps(x) + self.positions)
        z: Tensor = self.out(self.norm(x).mean(1))
        return z
