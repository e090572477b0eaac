"""Networks by name. Each takes the shape of one sample and the number of outputs."""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from torch import Tensor, nn

from edgefl.base.errors import ConfigError
from edgefl.learn.models.sequences import Recurrent, TokenMean, Transformer

Shape: TypeAlias = tuple[int, ...]
Factory: TypeAlias = Callable[[Shape, int], nn.Module]

VOCABULARY = 4096  # token ids come from hashing words into this many numbers


def refuse(model: str, shape: Shape, needs: str) -> ConfigError:
    """What to raise when a model cannot take samples of this shape."""
    return ConfigError(f"model '{model}' cannot take samples of shape {shape}: it needs {needs}")


def image(model: str, shape: Shape, side: int) -> tuple[int, int, int]:
    """Channels, height and width, if the sample is an image at least `side` wide and high."""
    if len(shape) != 3 or min(shape[1:]) < side or shape[0] < 1:
        raise refuse(model, shape, f"images (channels, height, width) of at least {side}x{side}")
    return shape[0], shape[1], shape[2]


def features(model: str, shape: Shape) -> int:
    """How many numbers a sample has."""
    if not shape or min(shape) < 1:
        raise refuse(model, shape, "at least one number per sample")
    return prod(shape)


def softmax(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(features("softmax", shape), classes))


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Two hidden layers of 200."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features("mlp", shape), 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, classes),
    )


def mlp_bn(shape: Shape, classes: int) -> nn.Module:
    """GradMA's perceptron: hidden layers of 200 and 100, each with BatchNorm."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features("mlp_bn", shape), 200),
        nn.BatchNorm1d(200),
        nn.ReLU(),
        nn.Linear(200, 100),
        nn.BatchNorm1d(100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )


def lenet5(shape: Shape, classes: int) -> nn.Module:
    """LeNet-5 with rectifiers and max pooling; images smaller than its original 32x32 get a border of two."""
    c, h, w = image("lenet5", shape, 12)
    pad = 2 if min(h, w) < 32 else 0
    rest = 16 * (((h + 2 * pad - 4) // 2 - 4) // 2) * (((w + 2 * pad - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(c, 6, 5, padding=pad),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(rest, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """The two-layer network of McMahan et al. (2017), also that of FedNTD and Flashback."""
    c, h, w = image("cnn", shape, 4)
    return nn.Sequential(
        nn.Conv2d(c, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (h // 4) * (w // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def cnn_small(shape: Shape, classes: int) -> nn.Module:
    """A small network for many small devices."""
    c, h, w = image("cnn_small", shape, 16)
    rest = 16 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(c, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(rest, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def cnn_fedreg(shape: Shape, classes: int) -> nn.Module:
    """FedReg's network for MNIST and EMNIST."""
    c, h, w = image("cnn_fedreg", shape, 20)
    rest = 64 * (((h - 8) // 2 - 4) // 2) * (((w - 8) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(c, 32, 5),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(rest, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )


def sensor_cnn(shape: Shape, classes: int) -> nn.Module:
    """A one-dimensional network for windows of sensor readings; its last pooling is over all of time."""
    if len(shape) != 2 or shape[1] < 4:
        raise refuse("sensor_cnn", shape, "windows (channels, length) of at least 4 readings")
    return nn.Sequential(
        nn.Conv1d(shape[0], 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool1d(shape[1] // 2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def block(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    """A convolution, its norm and rectifier; the norm is per sample, so no statistics travel."""
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(16, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class Residual(nn.Module):
    """Two blocks and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.around = nn.Sequential(block(width, width), block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.around(x)
        return out


def resnet9(shape: Shape, classes: int) -> nn.Module:
    """ResNet-9 with GroupNorm, for images like those of CIFAR."""
    c, h, w = image("resnet9", shape, 8)
    return nn.Sequential(
        block(c, 64),
        block(64, 128, pool=True),
        Residual(128),
        block(128, 256, pool=True),
        block(256, 512, pool=True),
        Residual(512),
        nn.MaxPool2d((h // 8, w // 8)),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


def text(shape: Shape, classes: int, vocabulary: int = VOCABULARY) -> nn.Module:
    """A bag of words: the mean of its embeddings, and one linear layer."""
    if len(shape) != 1:
        raise refuse("text", shape, "rows of token ids (length,)")
    return TokenMean(vocabulary, 64, classes)


def sequence(model: str, shape: Shape) -> tuple[int, int]:
    """Length and channels of a sequence; no channels: it is made of token ids."""
    if len(shape) not in (1, 2) or min(shape) < 1:
        raise refuse(model, shape, "token ids (length,) or windows (channels, length)")
    return (shape[0], 0) if len(shape) == 1 else (shape[1], shape[0])


def lstm(shape: Shape, classes: int, vocabulary: int = VOCABULARY) -> nn.Module:
    """One LSTM layer of 64 over token ids or sensor windows."""
    _, channels = sequence("lstm", shape)
    return Recurrent(vocabulary, channels, 64, classes)


def transformer(shape: Shape, classes: int, vocabulary: int = VOCABULARY) -> nn.Module:
    """Two small encoder layers over token ids or sensor windows."""
    length, channels = sequence("transformer", shape)
    return Transformer(vocabulary, channels, length, 64, classes)


ZOO: dict[str, Factory] = {
    "softmax": softmax,
    "mlp": mlp,
    "mlp_bn": mlp_bn,
    "lenet5": lenet5,
    "cnn": cnn,
    "cnn_small": cnn_small,
    "cnn_fedreg": cnn_fedreg,
    "sensor_cnn": sensor_cnn,
    "resnet9": resnet9,
    "text": text,
    "lstm": lstm,
    "transformer": transformer,
}
