"""Torch functions that are replaced while tracing, because what they do inside has no counterpart in ONNX."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edgefl.learn.models.onnx import volumes
from edgefl.learn.models.onnx.recurrent import gru_layer, lstm_layer, projected, stack
from edgefl.learn.models.onnx.resize import resized
from edgefl.learn.models.onnx.sizes import is_symbolic, static


class Rewrites(TorchFunctionMode):
    """While active, LSTM and GRU go through operators of ours, and a few others through simpler ones of torch's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        simpler = SIMPLER.get(func)
        rewritten = None if simpler is None else simpler(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if rewritten is None else rewritten


def _lstm(x: Tensor, states: Any, weights: Any, *rest: Any) -> tuple[Tensor, ...] | None:
    if not isinstance(states, (list, tuple)) or projected(weights, states[0]):
        return None
    y, (h, c) = stack(lstm_layer, x, list(states), list(weights), *rest)
    return y, h, c


def _gru(x: Tensor, h: Tensor, weights: Any, *rest: Any) -> tuple[Tensor, ...] | None:
    if not isinstance(weights, (list, tuple)):
        return None
    y, (h,) = stack(gru_layer, x, [h], list(weights), *rest)
    return y, h


def _bag(x: Tensor, table: Tensor, offsets: Any = None, *_: Any, mode: str = "mean", **options: Any) -> Tensor | None:
    if (
        _
        or x.ndim != 2
        or offsets is not None
        or mode == "max"
        or any(v for k, v in options.items() if k != "norm_type")
    ):
        return None
    rows = functional.embedding(x, table)
    return rows.mean(1) if mode == "mean" else rows.sum(1)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """The direction of `v` with the lengths of `g`, which vary along one axis; -1 stands for none."""
    others = [axis for axis in range(v.ndim) if axis != dim] if dim != -1 else None
    length: Tensor = torch.linalg.vector_norm(v, dim=others, keepdim=dim != -1)
    return v * (g / length)


def _pad(x: Tensor, pad: list[int], mode: str = "constant", *_: Any, **__: Any) -> Tensor | None:
    """Borders that repeat, mirror or go round: `pad` is before and after, from the last axis on."""
    if mode not in BORDERS:
        return None
    for axis, before, after in zip(range(x.ndim - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        size = static(x.shape[axis])
        x = _picked(x, axis, [BORDERS[mode](i, size) for i in range(-before, size + after)])
    return x


BORDERS: dict[str, Callable[[int, int], int]] = {  # which number stands at a place, perhaps beyond the last one
    "replicate": lambda i, size: min(max(i, 0), size - 1),
    "reflect": lambda i, size: size - 1 - abs(size - 1 - abs(i)),
    "circular": lambda i, size: i % size,
}


def _windows(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis, whose numbers come as a last one."""
    axis = dimension % x.ndim
    starts = range(0, static(x.shape[axis]) - size + 1, step)
    picked = _picked(x, axis, [start + i for start in starts for i in range(size)])
    return picked.reshape(*x.shape[:axis], len(starts), size, *x.shape[axis + 1 :]).movedim(axis + 1, -1)


def _prod(x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor | None:
    """The product along an axis, by halves: each is multiplied with the other, so that zeros have gradients too."""
    if not isinstance(dim, int) or is_symbolic(x.shape[dim]) or static(x.shape[dim]) == 0 or options:
        return None
    while (size := static(x.shape[dim])) > 1:
        half = size // 2
        both = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = both if size % 2 == 0 else torch.cat([both, x.narrow(dim, size - 1, 1)], dim)
    return x if keepdim else x.squeeze(dim)


def _bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each output is `a @ its matrix @ b`: all matrices side by side in one product, then one with `b`."""
    outputs, left, right = weight.shape
    ways = torch.matmul(a, weight.permute(1, 0, 2).reshape(left, outputs * right))
    z = (ways.reshape(*a.shape[:-1], outputs, right) * b.unsqueeze(-2)).sum(-1)
    return z if bias is None else z + bias


def _picked(x: Tensor, axis: int, places: list[int]) -> Tensor:
    return x.index_select(axis, torch.tensor(places))


SIMPLER: dict[Any, Callable[..., Any]] = {  # one that gives None leaves it to torch
    torch.lstm: _lstm,
    torch.gru: _gru,
    functional.embedding_bag: _bag,
    functional.interpolate: resized,
    functional.pad: _pad,
    Tensor.unfold: _windows,
    torch.prod: _prod,
    Tensor.prod: _prod,
    torch.bilinear: _bilinear,
    torch.max_pool3d: volumes.max_pool3d,
    functional.max_pool3d: volumes.max_pool3d,
    functional.avg_pool3d: volumes.avg_pool3d,
    functional.adaptive_avg_pool3d: volumes.adaptive_avg_pool3d,
    torch._weight_norm: _weight_norm,  # noqa: SLF001 - what parametrizations.weight_norm calls
}
