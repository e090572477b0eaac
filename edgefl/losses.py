"""Losses in numpy, on logits: each gives the batch mean and its gradient with respect to the logits.

A package adds its own through the entry point `edgefl.losses`, one function each; a run file may also name one
`package.module:function`. One that has a parameter `weights` can weigh classes (`task.class_weights`).
"""

from collections.abc import Callable, Collection
from functools import partial
from inspect import signature
from typing import TypeAlias

import numpy as np

from edgefl.errors import ConfigError
from edgefl.registry import Registry
from edgefl.vector import Array

Loss: TypeAlias = Callable[[Array, Array], tuple[float, Array]]


def log_softmax(z: Array) -> Array:
    """Row-wise log of the softmax, safe for large logits."""
    shifted = z - z.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def softmax(z: Array) -> Array:
    """Row-wise softmax."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def cross_entropy(z: Array, y: Array, weights: Array | None = None) -> tuple[float, Array]:
    """Cross-entropy of logits against labels: integers (n,), or soft rows (n, classes) that sum to one.

    With `weights` of the classes it is the mean over the batch of each sample's loss times what its class weighs.
    """
    n = len(z)
    logp = log_softmax(z)
    dz = np.exp(logp)
    if y.ndim == 1:
        rows = np.arange(n)
        right = logp[rows, y]
        dz[rows, y] -= 1
        if weights is not None:
            own = weights[y].astype(z.dtype)
            right, dz = own * right, dz * own[:, None]
        loss = -float(right.mean())
    else:
        y = y if weights is None else (y * weights).astype(z.dtype)
        loss = -float((y * logp).sum(axis=1).mean())
        dz = dz * y.sum(axis=1, keepdims=True) - y
    return loss, np.asarray(dz / z.dtype.type(n))


def double_softmax(z: Array, y: Array, weights: Array | None = None) -> tuple[float, Array]:
    """Cross-entropy that takes the softmax of a softmax, as the published program of Upcycled-FL does.

    Kept to reproduce its results: for two classes the loss cannot fall below ln(1 + 1/e) = 0.313.
    """
    p = softmax(z)
    loss, dp = cross_entropy(p, y, weights)
    return loss, np.asarray(p * (dp - (p * dp).sum(axis=1, keepdims=True)))


def squared_error(z: Array, y: Array) -> tuple[float, Array]:
    """Mean over the batch of half the squared distance; a label is a number, or a row as wide as the output."""
    target = y.reshape(z.shape) if y.size == z.size else np.eye(z.shape[1], dtype=z.dtype)[y]
    gap = z - target.astype(z.dtype)
    return float(0.5 * (gap * gap).sum(axis=1).mean()), np.asarray(gap / z.dtype.type(len(z)))


LOSSES: Registry[Loss] = Registry(
    "edgefl.losses",
    {"cross_entropy": cross_entropy, "double_softmax": double_softmax, "squared_error": squared_error},
)


def weighs(loss: Loss) -> bool:
    """Whether a loss can weigh classes."""
    return "weights" in signature(loss).parameters


def weighted(loss: Loss, weights: Array) -> Loss:
    """The loss in which a sample counts as much as its class weighs."""
    function: Callable[..., tuple[float, Array]] = loss
    return partial(function, weights=weights)


def loss(name: str, allowed: Collection[str] | None = None) -> Loss:
    """The loss that a run file names; a manifest, with the code that the device `allowed`."""
    function = LOSSES.find(name, "task.loss", allowed)
    if not callable(function):
        raise ConfigError(f"task.loss = '{name}' is no function of logits and labels")
    return function
