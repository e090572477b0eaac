"""Generated data: blobs for tests, and the Synthetic(a, b) family of FedProx and Upcycled-FL.

Both are drawn from fixed streams: the same name is the same data everywhere, whatever the run's seed. Another draw of
the same recipe has another name.
"""

import re

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.source import Source

_NUMBER = r"\s*(\d+(?:\.\d+)?)\s*"
_SHAPE = r"(?:,\s*(\d+)\s*,\s*(\d+)\s*)?"
_DRAW = r"(?:,\s*draw\s*=\s*(\d+)\s*)?"
_NAME = re.compile(rf"synthetic\((?:{_NUMBER},{_NUMBER}|\s*iid\s*){_SHAPE}{_DRAW}\)")


def blobs(classes: int = 10, features: int = 20, samples: int = 1200) -> Source:
    """Gaussian blobs, one for each class, as many samples in each: five sixths to train, the rest to test."""
    rng = seeds.stream(0, "blobs")
    y = np.arange(samples, dtype=np.int64) % classes
    centres = rng.normal(0, 1, (classes, features))
    x = (centres[y] + rng.normal(0, 1, (samples, features))).astype(np.float32)
    cut = samples * 5 // 6
    return Source(Dataset(x[:cut], y[:cut], classes), Dataset(x[cut:], y[cut:], classes), None, "synthetic")


def named(name: str) -> Source:
    """The source of `synthetic(a,b)` or `synthetic(iid)`.

    `synthetic(a,b,60,10)` has 60 features and 10 classes; `draw=3` at the end is another draw than the first, 0.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise ConfigError(
            f"data set '{name}': write synthetic(a,b), synthetic(iid), synthetic(a,b,features,classes) "
            "or synthetic(a,b,features,classes,draw=1)"
        )
    a, b, features, classes, draw = match.groups()
    spread = None if a is None else (float(a), float(b))
    if features and not (int(features) >= 1 and int(classes) >= 2):
        raise ConfigError(f"data set '{name}': needs at least 1 feature and 2 classes")
    return generate(spread, int(features or 20), int(classes or 10), draw=int(draw or 0), name=name)


def generate(
    spread: tuple[float, float] | None,
    features: int = 20,
    classes: int = 10,
    *,
    devices: int = 30,
    draw: int = 0,
    name: str = "synthetic",
) -> Source:
    """Synthetic(a, b): a spreads the devices' true models, b their inputs; None: one model and one input for all.

    Sizes are lognormal, nine tenths of every device are for training, groups are the devices. The default is the
    form of the Upcycled-FL paper; FedProx has 60 features; the files behind Upcycled's numbers have 2 classes.
    """
    noise = np.arange(1, features + 1) ** -0.6  # standard deviations: the variances are j^-1.2
    common = seeds.stream(draw, "synthetic")
    shared = common.normal(0, 1, (features, classes)), common.normal(0, 1, classes)
    parts: list[tuple[Array, Array]] = []
    for k in range(devices):
        rng = seeds.stream(draw, "synthetic", k)
        size = int(rng.lognormal(4, 2)) + 50
        (weights, bias), centre = shared, np.zeros(features)
        if spread is not None:
            u, v = rng.normal(0, spread[0]), rng.normal(0, spread[1])
            weights, bias = rng.normal(u, 1, (features, classes)), rng.normal(u, 1, classes)
            centre = rng.normal(v, 1, features)
        x = rng.normal(centre, noise, (size, features))
        parts.append((x.astype(np.float32), np.argmax(x @ weights + bias, axis=1)))
    cuts = [len(y) * 9 // 10 for _, y in parts]
    train, test = (
        Dataset(
            np.concatenate([x[side] for (x, _), side in zip(parts, sides, strict=True)]),
            np.concatenate([y[side] for (_, y), side in zip(parts, sides, strict=True)]).astype(np.int64),
            classes,
        )
        for sides in ([slice(cut) for cut in cuts], [slice(cut, None) for cut in cuts])
    )
    return Source(train, test, np.repeat(np.arange(devices), cuts), name)
