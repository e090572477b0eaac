"""A network of one's own: a function of the shape of a sample and the number of classes."""

from torch import nn


def small_net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions for pictures of any size; GroupNorm keeps no running statistics, so none have to travel."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
