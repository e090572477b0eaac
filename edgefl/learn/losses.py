"""Losses in numpy, on logits: each gives the batch mean and its gradient with respect to the logits.

A package adds its own through the entry point `edgefl.losses`, one function each; a run file may also name one
`package.module:function`, whose gradient is checked before a run begins (`edgefl/learn/loss_check.py`). One that has a
parameter `weights` can weigh classes (`task.class_weights`). Of tasks with several outputs (`task.kind = "heads"`) a
loss takes outputs and labels by name, and gives the gradient by name.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.registry import Registry
from edgefl.system import user_code

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
    Logits (n, classes, ...) of a label for each place (n, ...) give the mean over all places that have one.
    """
    if z.ndim > 2:
        loss, dz = _each_place(np.moveaxis(z, 1, -1), y)
        return loss, np.moveaxis(dz, -1, 1)
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


def token_cross_entropy(z: Array, y: Array) -> tuple[float, Array]:
    """The same of logits (n, length, tokens) against the token that comes at each place; below 0: none does."""
    return _each_place(z, y)


def _each_place(z: Array, y: Array) -> tuple[float, Array]:
    """Cross-entropy of logits (..., classes) against class numbers (...): the mean over those that are not below 0."""
    rows, labels = z.reshape(-1, z.shape[-1]), y.reshape(-1)
    known = np.flatnonzero(labels >= 0)
    logp = log_softmax(rows)
    dz = np.zeros_like(rows)
    dz[known] = np.exp(logp[known])
    dz[known, labels[known]] -= 1
    count = max(1, len(known))
    return -float(logp[known, labels[known]].sum()) / count, np.asarray(dz / z.dtype.type(count)).reshape(z.shape)


def binary_cross_entropy(z: Array, y: Array) -> tuple[float, Array]:
    """Of logits (n, labels) against marks of 0 and 1: the mean over all of them, each a question of its own."""
    marks = y.reshape(z.shape).astype(z.dtype)
    each = np.maximum(z, 0) - z * marks + np.log1p(np.exp(-np.abs(z)))
    p = np.where(z >= 0, 1, np.exp(-np.abs(z))) / (1 + np.exp(-np.abs(z)))
    return float(each.mean()), np.asarray((p - marks) / z.dtype.type(z.size)).astype(z.dtype, copy=False)


def heads(z: Mapping[str, Array], y: Mapping[str, Array]) -> tuple[float, dict[str, Array]]:
    """The sum over several outputs by name: cross-entropy where the label is a class, else half the squared distance.

    An output that has no label of its name is not learnt.
    """
    total, gradients = 0.0, {name: np.zeros_like(part) for name, part in z.items()}
    for name, label in y.items():
        plain = cross_entropy if label.dtype.kind in "iu" else squared_error
        rows = z[name] if plain is cross_entropy else z[name].reshape(len(label), -1)
        loss, dz = plain(rows, label)
        total, gradients[name] = total + loss, dz.reshape(z[name].shape)
    return total, gradients


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
    return float(0.5 * (gap * gap).reshape(len(z), -1).sum(axis=1).mean()), np.asarray(gap / z.dtype.type(len(z)))


def mean_squared_error(z: Array, y: Array) -> tuple[float, Array]:
    """Mean over the batch and all outputs of the squared distance, as torch's `mse_loss` has it."""
    half, dz = squared_error(z, y)
    scale = 2 * len(z) / z.size
    return half * scale, np.asarray(dz * z.dtype.type(scale))


_heads: Any = heads  # of arrays by name: the form of such a task gives it what it takes
OURS: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "token_cross_entropy": token_cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "squared_error": squared_error,
    "mean_squared_error": mean_squared_error,
    "heads": _heads,
    "double_softmax": double_softmax,
}
LOSSES: Registry[Loss] = Registry("edgefl.losses", OURS)


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
    if not user_code.is_function(function):
        raise ConfigError(f"task.loss = '{name}' is no function of logits and labels")
    return function
