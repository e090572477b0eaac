"""Rules for pooling.

An average over windows is a matrix along each axis. So the general case, with any padding, rounding or overlap, is two
matrix products, and its gradient the same with the matrices transposed; the plain cases take faster ways.
"""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's operators

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from onnx import numpy_helper

from edgefl.base.vector import Array
from edgefl.learn.models.onnx.graph import ONNX_TYPES, Graph, Value
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import Dim, UncoveredError, spread, static, statics

Dims: TypeAlias = Sequence[Dim]
PLACES = "@places"  # after a result's name: stands for the indices of its maxima, which are never computed


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """How a maximum walks over the last two axes of an image."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    @property
    def overlaps(self) -> bool:
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        return any(s < r for s, r in zip(self.stride, reach, strict=True))

    def tiles(self, size: list[int]) -> bool:
        """Whether the windows cover an image of this size once and completely."""
        plain = self.kernel == self.stride and not any(self.padding) and max(self.dilation) == 1
        return plain and all(i % k == 0 for i, k in zip(size, self.kernel, strict=True))


def _window(kernel: Dims, stride: Dims, padding: Dims, dilation: Dims) -> PoolWindow:
    k = spread(kernel, 2)
    return PoolWindow(k, spread(stride, 2) if len(stride) else k, spread(padding, 2), spread(dilation, 2))


@on(aten.max_pool2d_with_indices.default)
def _max_pool(
    g: Graph, x: Value, kernel: Dims, stride: Dims = (), padding: Dims = (0,), dilation: Dims = (1,), _: bool = False
) -> list[str]:  # fmt: skip
    """Where windows tile the image, without indices: asking for them makes onnxruntime eight times slower."""
    v = _window(kernel, stride, padding, dilation)
    size, reach = statics(x.shape[-2:]), statics(g.out[0].shape[-2:])
    if v.tiles(size) and x.ndim == 4:
        y = g("MaxPool", x, kernel_shape=v.kernel, strides=v.stride)
        return [y, y + PLACES]
    # The padding at the end is whatever torch's rounding reaches for, so that no rounding mode has to agree.
    far = [(r - 1) * s + d * (k - 1) + 1 for r, s, d, k in zip(reach, v.stride, v.dilation, v.kernel, strict=True)]
    end = [max(0, f - i - p) for f, i, p in zip(far, size, v.padding, strict=True)]
    pads, dilations = v.padding + end, v.dilation
    return g.several("MaxPool", x, n=2, kernel_shape=v.kernel, strides=v.stride, pads=pads, dilations=dilations)


@on(aten.max_pool2d_with_indices_backward.default)
def _max_pool_backward(
    g: Graph, dy: Value, x: Value, kernel: Dims, stride: Dims, padding: Dims, dilation: Dims, _: bool,
    where: Value,
) -> str:  # fmt: skip
    v = _window(kernel, stride, padding, dilation)
    if where.name.endswith(PLACES):
        y = Value(where.name.removesuffix(PLACES), dy.fake)
        dx = to_first(g, dy, x, y, v.kernel)
        g.pooled[dx] = (dy, x, y, v.kernel)
        return dx
    return g.reshape(_scatter(g, dy.name, where.name, g.numel(x.shape), add=v.overlaps), x.shape)


def to_first(g: Graph, dy: Value, x: Value, y: Value, k: list[int]) -> str:
    """Each window's gradient goes to the first of its largest numbers, row by row, as in torch.

    Each place of a window has a number, the higher the earlier it comes; of those that hold the maximum, the highest
    number wins and tells the place. Comparing and pooling is twice as fast as asking the pooling for its indices.
    """
    (h, w), (down, across) = statics(x.shape[-2:]), k
    later = np.arange(down)[:, None] * w + np.arange(across)  # how far behind the first place of its window
    numbers = later.max() + 1 - later
    board = g.constant(np.tile(numbers, (h // down, w // across)), x.dtype)
    largest = g("Cast", g("Equal", x, _enlarged(g, y.name, k)), to=ONNX_TYPES[x.dtype])
    winner = g("MaxPool", g("Mul", largest, board), kernel_shape=k, strides=k)
    corners = np.arange(0, h, down)[:, None] * w + np.arange(0, w, across) + numbers.max()
    place = g("Sub", g.constant(corners), g("Cast", winner, to=ONNX_TYPES[torch.int64]))
    where = g.early(g("Add", place, _images(g, x)))
    # It is within these limits already. A device only takes places that a Clip keeps inside the result (`onnx_guard`).
    last = g("Sub", g("Squeeze", g.numel(x.shape)), g.constant(1))
    return g("MaxUnpool", dy, g("Clip", where, g.constant(0), last), kernel_shape=k, strides=k)


def _images(g: Graph, x: Value) -> str:
    """Where each image of each channel begins, counted in numbers from the start of `x`."""
    area = numpy_helper.from_array(np.array([prod(statics(x.shape[-2:]))]))
    sizes = g("ConstantOfShape", g.numel(x.shape[:2]), value=area)
    return g("Reshape", g("CumSum", sizes, g.constant(0), exclusive=1), g.constant([-1, static(x.shape[1]), 1, 1]))


def _enlarged(g: Graph, x: str, k: list[int]) -> str:
    scales = g.constant([1, 1, *k], torch.float32)
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g("Resize", x, "", scales, **how)


def _scatter(g: Graph, dy: str, where: str, size: str, *, add: bool) -> str:
    flat = g.constant([-1])
    more = {"reduction": "add"} if add else {}
    zeros = g("ConstantOfShape", size)
    return g("ScatterElements", zeros, g("Reshape", where, flat), g("Reshape", dy, flat), axis=0, **more)


def _adaptive_windows(size: int, out: int) -> list[range]:
    return [range(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _plain_windows(size: int, out: int, k: int, s: int, p: int) -> list[range]:
    """Where each window lies, counted from the first real row; it may reach into the padding, not beyond."""
    return [range(i * s - p, min(i * s - p + k, size + p)) for i in range(out)]


def _averages(windows: list[range], size: int, *, padded: bool, divisor: int | None = None) -> Array:
    """The matrix that takes the average over each window."""
    rows = np.zeros([len(windows), size], np.float32)
    for row, window in zip(rows, windows, strict=True):
        inside = [i for i in window if 0 <= i < size]
        row[inside] = 1 / (divisor or (len(window) if padded else len(inside)))
    return rows


def _apply(g: Graph, x: Value, rows: Array, columns: Array) -> str:
    """The product `rows @ x @ columns.T`, image by image."""
    narrow = g("MatMul", x, g.constant(columns.T, x.dtype))
    return g("MatMul", g.constant(rows, x.dtype), narrow)


def _matrices(
    x: Value,
    out: list[int],
    kernel: Dims,
    stride: Dims,
    padding: Dims,
    include: bool,
    divisor: int | None,
) -> list[Array]:
    k, p = spread(kernel, 2), spread(padding, 2)
    s = spread(stride, 2) if len(stride) else k
    size = statics(x.shape[-2:])
    over = [divisor, 1] if divisor else [None, None]
    return [
        _averages(_plain_windows(size[i], out[i], k[i], s[i], p[i]), size[i], padded=include, divisor=over[i])
        for i in range(2)
    ]


@on(aten.avg_pool2d.default)
def _avg_pool(
    g: Graph, x: Value, kernel: Dims, stride: Dims = (), padding: Dims = (0,), ceil: bool = False,
    include: bool = True, divisor: int | None = None,
) -> str:  # fmt: skip
    if not (any(statics(padding)) or ceil or divisor):
        k = spread(kernel, 2)
        return g("AveragePool", x, kernel_shape=k, strides=spread(stride, 2) if len(stride) else k)
    return _apply(g, x, *_matrices(x, statics(g.out.shape[-2:]), kernel, stride, padding, include, divisor))


@on(aten.avg_pool2d_backward.default)
def _avg_pool_backward(
    g: Graph, dy: Value, x: Value, kernel: Dims, stride: Dims, padding: Dims, _: bool, include: bool,
    divisor: int | None = None,
) -> str:  # fmt: skip
    out = statics(dy.shape[-2:])
    tiles = [a * b for a, b in zip(spread(kernel, 2), out, strict=True)] == statics(x.shape[-2:])
    if tiles and not any(statics(padding)) and not divisor:
        return _spread_evenly(g, dy, x, spread(kernel, 2))
    rows, columns = _matrices(x, out, kernel, stride, padding, include, divisor)
    return _apply(g, dy, rows.T, columns.T)


def _spread_evenly(g: Graph, dy: Value, x: Value, k: list[int]) -> str:
    share = Value(g("Mul", dy, g.constant(1 / prod(k), dy.dtype)), dy.fake)
    if statics(dy.shape[-2:]) == [1, 1]:
        return g("Expand", share, g.sizes(x.shape))
    h, w = statics(dy.shape[-2:])
    cells = g.reshape(share, [*dy.shape[:-2], h, 1, w, 1])
    return g.reshape(g("Expand", cells, g.constant([1, k[0], 1, k[1]])), x.shape)


def _tiles(x: Value, out: list[int]) -> list[int] | None:
    """The window, where windows of one size cover the image without overlap."""
    size = statics(x.shape[-2:])
    k = [a // b for a, b in zip(size, out, strict=True)]
    return k if [a * b for a, b in zip(k, out, strict=True)] == size else None


@on("_adaptive_avg_pool2d.default")
def _adaptive_avg_pool(g: Graph, x: Value, shape: Dims) -> str:
    out = statics(shape)
    k = _tiles(x, out)
    if out == [1, 1]:
        return g("ReduceMean", x, g.constant([x.ndim - 2, x.ndim - 1]), keepdims=1)
    if k:
        return g("AveragePool", x, kernel_shape=k, strides=k)
    return _apply(g, x, *_adaptive_matrices(x, out))


def _adaptive_matrices(x: Value, out: list[int]) -> list[Array]:
    sizes = zip(statics(x.shape[-2:]), out, strict=True)
    return [_averages(_adaptive_windows(size, o), size, padded=False) for size, o in sizes]


@on("_adaptive_avg_pool2d_backward.default")
def _adaptive_avg_pool_backward(g: Graph, dy: Value, x: Value) -> str:
    out = statics(dy.shape[-2:])
    k = _tiles(x, out)
    if k:
        return _spread_evenly(g, dy, x, k)
    rows, columns = _adaptive_matrices(x, out)
    return _apply(g, dy, rows.T, columns.T)


def _copies(size: int, out: int) -> list[int]:
    """Rows of the image, repeated so that windows of one size no longer overlap; a short one repeats its last row."""
    windows = _adaptive_windows(size, out)
    widest = max(len(w) for w in windows)
    return [min(w.start + i, w.stop - 1) for w in windows for i in range(widest)]


@on(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool(g: Graph, x: Value, shape: Dims) -> list[str]:
    if x.ndim != 4:
        raise UncoveredError("adaptive_max_pool2d without a batch axis")
    out, size = statics(shape), statics(x.shape[-2:])
    k, image = _tiles(x, out), x.name
    if not k:
        copies = [_copies(i, o) for i, o in zip(size, out, strict=True)]
        k = [len(c) // o for c, o in zip(copies, out, strict=True)]
        image = g("Gather", g("Gather", x, g.constant(copies[0]), axis=2), g.constant(copies[1]), axis=3)
    return g.several("MaxPool", image, kernel_shape=k, strides=k, n=2)


@on(aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_pool_backward(g: Graph, dy: Value, x: Value, where: Value) -> str:
    out, size = statics(dy.shape[-2:]), statics(x.shape[-2:])
    if _tiles(x, out):
        return g.reshape(_scatter(g, dy.name, where.name, g.numel(x.shape), add=False), x.shape)
    copies = [_copies(i, o) for i, o in zip(size, out, strict=True)]
    shape = [*x.shape[:2], len(copies[0]), len(copies[1])]
    expanded = Value(g.reshape(_scatter(g, dy.name, where.name, g.numel(shape), add=False), shape), x.fake)
    rows, columns = (np.eye(i, dtype=np.float32)[:, c] for i, c in zip(size, copies, strict=True))
    return _apply(g, expanded, rows, columns)
