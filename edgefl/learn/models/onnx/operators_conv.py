"""Rules for convolutions and their gradients.

The gradient of the image is the transposed convolution of dy. The gradient of the kernel is a product of what each
place of the kernel saw with dy; with groups, a convolution of the image with dy whose batch and channel axes are
exchanged, where stride and dilation change places. A transposed convolution is the same with image and result
exchanged. Where a large kernel meets a small result, all three are one product for the whole batch.
"""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's operators

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

from edgefl.learn.models.onnx.graph import Graph, Value
from edgefl.learn.models.onnx.operators_linear import reduced
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import Dim, spread, static, statics

FEW_CHANNELS = 16  # below which the places of a row of the kernel share one product
BLOCK = 16  # columns that a product computes at a time, even where there are fewer
LARGE = 2**16  # weights from which on their order in memory decides the speed
FEW = 64  # places of a result up to which one product for the whole batch beats one for each image
MANY_CHANNELS = 128  # of an image, from which on its gradient is faster as a plain convolution


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """How a kernel walks over an image."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": self.padding * 2,
            "dilations": self.dilation,
            "group": self.groups,
        }


def _window(w: Value, stride: list[Dim], padding: list[Dim], dilation: list[Dim], groups: int) -> ConvWindow:
    n = w.ndim - 2
    return ConvWindow(statics(w.shape[2:]), spread(stride, n), spread(padding, n), spread(dilation, n), groups)


@on(aten.convolution.default)
def _convolution(
    g: Graph, x: Value, w: Value, bias: Value | None, stride: list[Dim], padding: list[Dim], dilation: list[Dim],
    transposed: bool, output_padding: list[Dim], groups: int,
) -> str:  # fmt: skip
    window = _window(w, stride, padding, dilation, groups)
    given = [x, w] if bias is None else [x, w, bias]
    if transposed:
        extra = spread(output_padding, w.ndim - 2)
        return g("ConvTranspose", *given, output_padding=extra, **window.attributes())
    if _few_places(g.out.shape, w, window):
        return _result_by_product(g, x, w, bias, window)
    return g("Conv", *given, **window.attributes())


@on(aten.convolution_backward.default)
def _convolution_backward(
    g: Graph, dy: Value, x: Value, w: Value, _: Any, stride: list[Dim], padding: list[Dim], dilation: list[Dim],
    transposed: bool, __: Any, groups: int, output_mask: list[bool],
) -> list[str | None]:  # fmt: skip
    window = _window(w, stride, padding, dilation, groups)
    dx = dw = db = None
    if output_mask[0] and transposed:
        dx = g("Conv", dy, w, **window.attributes())
    elif output_mask[0]:
        dx = _image_gradient(g, dy, x, w, window)
    if output_mask[1]:
        dw = _kernel_gradient(g, *((dy, x) if transposed else (x, dy)), w, window)
    if output_mask[2]:
        db = reduced(g, "ReduceSum", dy, [0, *range(2, dy.ndim)], dy.ndim, keep=False)
    return [dx, dw, db]


def _few_places(shape: Sequence[Dim], w: Value, v: ConvWindow) -> bool:
    """Whether the kernel is large and the result small, so that reading the kernel is most of the work."""
    places = statics(shape[2:])
    return len(places) == 2 and v.groups == 1 and prod(statics(w.shape)) >= LARGE and prod(places) <= FEW


def _result_by_product(g: Graph, x: Value, w: Value, bias: Value | None, v: ConvWindow) -> str:
    """One matrix product for the whole batch, so that a large kernel is read once and not for every image."""
    filters, reach = static(w.shape[0]), statics(g.out.shape[2:])
    given = [g("Reshape", w, g.constant([filters, -1])), _columns(g, x, reach, v)]
    given += [] if bias is None else [g("Reshape", bias, g.constant([filters, 1]))]
    return g("Transpose", g("Reshape", g("Gemm", *given), g.constant([filters, *reach, -1])), perm=[3, 0, 1, 2])


def _image_gradient(g: Graph, dy: Value, x: Value, w: Value, v: ConvWindow) -> str:
    image, result = statics(x.shape[2:]), statics(dy.shape[2:])
    reached = [
        (r - 1) * s - 2 * p + d * (k - 1) + 1
        for r, s, p, d, k in zip(result, v.stride, v.padding, v.dilation, v.kernel, strict=True)
    ]
    extra = [i - r for i, r in zip(image, reached, strict=True)]
    if _few_places(dy.shape, w, v):
        return _image_by_product(g, dy, image, w, v)
    if _many_channels(w, v):
        return _image_by_convolution(g, dy, w, v)
    return g("ConvTranspose", dy, w, output_padding=extra, **v.attributes())


def _many_channels(w: Value, v: ConvWindow) -> bool:
    """Whether a plain convolution gives the image's gradient, and its kernel is small beside what it does."""
    dense = v.groups == 1 and max(v.stride) == 1 and static(w.shape[1]) >= MANY_CHANNELS
    inside = all(p <= d * (k - 1) for p, d, k in zip(v.padding, v.dilation, v.kernel, strict=True))
    return dense and inside


def _image_by_convolution(g: Graph, dy: Value, w: Value, v: ConvWindow) -> str:
    """A convolution with the kernel turned round, which writes each number once where the transposed one adds up."""
    n = len(v.kernel)
    turned = g.slice(w, range(2, 2 + n), [-1] * n, [-k - 1 for k in v.kernel], [-1] * n)
    rest = [d * (k - 1) - p for p, d, k in zip(v.padding, v.dilation, v.kernel, strict=True)]
    window = ConvWindow(v.kernel, v.stride, rest, v.dilation, v.groups)
    return g("Conv", dy, g.swap(turned, w.ndim), **window.attributes())


def _image_by_product(g: Graph, dy: Value, image: list[int], w: Value, v: ConvWindow) -> str:
    """As the result: one matrix product for the whole batch."""
    filters, columns, area = static(w.shape[0]), prod(statics(w.shape[1:])), prod(statics(dy.shape[2:]))
    left = g("Reshape", g("Transpose", dy, perm=[0, 2, 3, 1]), g.constant([-1, filters]))
    places = g("Gemm", left, g("Reshape", w, g.constant([filters, columns])))
    by_image = g("Transpose", g("Reshape", places, g.constant([-1, area, columns])), perm=[0, 2, 1])
    how = {"strides": v.stride, "pads": v.padding * 2, "dilations": v.dilation}
    return g("Col2Im", by_image, g.constant(image), g.constant(v.kernel), **how)


def _kernel_gradient(g: Graph, image: Value, result: Value, w: Value, v: ConvWindow) -> str:
    if v.groups > 1:
        return _by_convolution(g, image, result, v)
    filters, shape = static(result.shape[1]), g.constant(statics([result.shape[1], image.shape[1], *v.kernel]))
    if _few_places(result.shape, w, v):
        left = g("Reshape", g("Transpose", result, perm=[1, 2, 3, 0]), g.constant([filters, -1]))
        columns = _columns(g, image, statics(result.shape[2:]), v)
        return g("Reshape", g("Gemm", left, columns, transB=1), shape)
    if max(v.kernel) == 1 and max(v.stride) == 1 and not any(v.padding):
        left, right = (g("Reshape", g.swap(a, a.ndim), g.constant([static(a.shape[1]), -1])) for a in (result, image))
        return g("Reshape", g("Gemm", left, right, transB=1), shape)
    return g("Reshape", _by_products(g, image, result, v), shape)


def _by_products(g: Graph, image: Value, result: Value, v: ConvWindow) -> str:
    """Matrix products of dy with what each place of the kernel saw, contracted over area and batch.

    Where channels are few, the places of a row of the kernel share one product; where they are very few, several rows
    do.
    """
    n, channels, filters = len(v.kernel), static(image.shape[1]), static(result.shape[1])
    reach, few = statics(result.shape[2:]), channels < FEW_CHANNELS
    source, width, free = _batch_last(g, image, v), channels, n
    while few and free > 1:
        free -= 1
        source = g("Concat", *(_seen(g, source, reach, v, {free: place}) for place in range(v.kernel[free])), axis=0)
        width *= v.kernel[free]
    rows = [_seen(g, source, reach, v, at) for at in _places(v.kernel[:free])]
    together = _together(len(rows), width) if few else 1
    groups = [rows[i : i + together] for i in range(0, len(rows), together)]
    left = g("Reshape", g("Transpose", result, perm=[1, *range(2, 2 + n), 0]), g.constant([filters, -1]))
    products = [g("Gemm", left, _matrix(g, group, width), transB=1) for group in groups]
    by_place = g("Reshape", g("Concat", *products, axis=1), g.constant([filters, prod(v.kernel), channels]))
    return g("Transpose", by_place, perm=[0, 2, 1])


def _together(rows: int, width: int) -> int:
    """How many rows of a kernel share a product: as few as fill its blocks, because all that do lie in memory twice.

    A row that is two blocks alone gains nothing by others, and all together, if they are no more, nothing without them.
    """
    if width >= 2 * BLOCK:
        return 1
    if rows * width <= 2 * BLOCK:
        return rows

    def blocks(together: int) -> int:
        sizes = [min(together, rows - i) for i in range(0, rows, together)]
        return sum(ceil(size * width / BLOCK) for size in sizes)

    return min(range(1, rows + 1), key=blocks)


def _matrix(g: Graph, rows: Sequence[str], width: int) -> str:
    """Rows of the kernel, each so wide, as the rows of one matrix."""
    seen = rows[0] if len(rows) == 1 else g("Concat", *rows, axis=0)
    return g("Reshape", seen, g.constant([width * len(rows), -1]))


def _columns(g: Graph, image: Value, reach: list[int], v: ConvWindow) -> str:
    """What each place of each channel's kernel saw, as the rows of a matrix."""
    source, channels = _batch_last(g, image, v), static(image.shape[1])
    one = g.constant([channels, 1, -1])
    rows = [g("Reshape", _seen(g, source, reach, v, at), one) for at in _places(v.kernel)]
    return g("Reshape", g("Concat", *rows, axis=1), g.constant([channels * len(rows), -1]))


def _batch_last(g: Graph, image: Value, v: ConvWindow) -> str:
    """The padded image with its batch as the last axis, so that what a place sees of it lies in large blocks."""
    source = g("Transpose", image, perm=[1, *range(2, image.ndim), 0])
    return g("Pad", source, g.constant([0, *v.padding, 0] * 2)) if any(v.padding) else source


def _places(kernel: list[int]) -> list[dict[int, int]]:
    """The places of a kernel: for each of its axes, how far along."""
    return [dict(enumerate(place)) for place in product(*(range(k) for k in kernel))]


def _seen(g: Graph, source: str, reach: list[int], v: ConvWindow, at: dict[int, int]) -> str:
    """What a place of the kernel sees of the image, along the axes that are told."""
    start = [place * v.dilation[axis] for axis, place in at.items()]
    end = [s + (reach[axis] - 1) * v.stride[axis] + 1 for s, axis in zip(start, at, strict=True)]
    return g.slice(source, [1 + axis for axis in at], start, end, [v.stride[axis] for axis in at])


def _by_convolution(g: Graph, image: Value, result: Value, v: ConvWindow) -> str:
    channels = static(image.shape[1]) // v.groups
    n, size, reach = len(v.kernel), statics(image.shape[2:]), statics(result.shape[2:])
    split = g("Reshape", image, g.constant([-1, v.groups, channels, *size]))
    turned = g("Transpose", split, perm=[2, 1, 0, *range(3, 3 + n)])
    source = g("Reshape", turned, g.constant([channels, -1, *size]))
    exchanged = ConvWindow(reach, v.dilation, v.padding, v.stride, v.groups)
    dw = g("Conv", source, g.swap(result, result.ndim), **exchanged.attributes())
    kernel = [
        (i + 2 * p - s * (r - 1) - 1) // d + 1
        for i, p, s, r, d in zip(size, v.padding, v.stride, reach, v.dilation, strict=True)
    ]
    if kernel != v.kernel:  # a stride that skipped the last rows of the image reaches too far here
        dw = g.slice(dw, list(range(2, 2 + n)), [0] * n, v.kernel, [1] * n)
    return g.swap(dw, 2 + n)
