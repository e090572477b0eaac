"""Resizing images, sequences and volumes while tracing: every way of doing so is a matrix along each axis.

The matrix is what torch itself makes of unit vectors, so that no formula for corners, scales or filters has to agree
with torch's; its transpose pulls gradients back. Where each number is only repeated there is no matrix at all.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from edgefl.learn.models.onnx.sizes import Dim, is_symbolic, static

NEAREST = ("nearest", "nearest-exact")


def resized(x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **how: Any) -> Tensor | None:
    """What `torch.nn.functional.interpolate` gives, in products of matrices; None if that is no such product."""
    if mode == "area" or (size is None) == (scale_factor is None) or any(is_symbolic(d) for d in x.shape[2:]):
        return None
    axes = x.ndim - 2
    sizes, scales = each(size, axes), each(scale_factor, axes)
    for i in range(axes):
        before = static(x.shape[2 + i])
        options = {"size": _alone(sizes[i], 1, axes), "scale_factor": _alone(scales[i], 1.0, axes), "mode": mode, **how}
        after, matrix = _matrix(before, axes, {name: value for name, value in options.items() if value is not None})
        if after % before == 0 and mode in NEAREST:
            x = _repeated(x, 2 + i, after // before)
        else:
            x = torch.matmul(x.movedim(2 + i, -1), matrix.to(x.dtype)).movedim(-1, 2 + i)
    return x


def each(value: "Sequence[Any] | Any", axes: int) -> list[Any]:
    """One value for each axis."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * axes


def _alone(value: Any, others: Any, axes: int) -> list[Any] | None:
    """One value for the last axis, and for the others what leaves them alone."""
    return None if value is None else [others] * (axes - 1) + [value]


def _matrix(before: int, axes: int, options: dict[str, Any]) -> tuple[int, Tensor]:
    """The size of an axis after resizing, and the matrix that does it."""
    with _disable_current_modes():  # numbers, not a trace of how they came about
        rows = torch.eye(before, dtype=torch.float64).reshape(1, before, *[1] * (axes - 1), before)
        matrix = functional.interpolate(rows, **options).reshape(before, -1)
    return matrix.shape[1], matrix


def _repeated(x: Tensor, axis: int, times: int) -> Tensor:
    """Repeat each number of this axis."""
    if times == 1:
        return x
    dims: list[Dim] = list(x.shape)
    spread = x.unsqueeze(axis + 1).expand(*dims[: axis + 1], times, *dims[axis + 1 :])
    return spread.reshape(*dims[:axis], dims[axis] * times, *dims[axis + 1 :])
