"""Rules for convolutions and their gradients.

The gradient of the image is the transposed convolution of dy. The gradient of the kernel is a product of what each
place of the kernel saw with dy; with groups, a convolution of the image with dy whose batch and channel axes are
exchanged, where stride and dilation change places. A transposed convolution is the same with image and result
exchanged.
"""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's operators

from dataclasses import dataclass
from math import prod
from typing import Any

from edgefl.models.onnx.graph import Graph, Value
from edgefl.models.onnx.operators_linear import reduced
from edgefl.models.onnx.rules import aten, on
from edgefl.models.onnx.sizes import Dim, spread, static, statics

NARROW = 32  # columns below which rows of the kernel share one product
LARGE = 2**16  # weights from which on their order in memory decides the speed
FEW = 32  # places of a result below which one product for the whole batch beats one for each image


@dataclass(frozen=True, slots=True)
class Window:
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


def _window(w: Value, stride: list[Dim], padding: list[Dim], dilation: list[Dim], groups: int) -> Window:
    n = w.ndim - 2
    return Window(statics(w.shape[2:]), spread(stride, n), spread(padding, n), spread(dilation, n), groups)


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
    return g("Conv", *given, **window.attributes())


@on(aten.convolution_backward.default)
def _convolution_backward(
    g: Graph, dy: Value, x: Value, w: Value, _: Any, stride: list[Dim], padding: list[Dim], dilation: list[Dim],
    transposed: bool, __: Any, groups: int, wanted: list[bool],
) -> list[str | None]:  # fmt: skip
    window = _window(w, stride, padding, dilation, groups)
    dx = dw = db = None
    if wanted[0] and transposed:
        dx = g("Conv", dy, w, **window.attributes())
    elif wanted[0]:
        dx = _image_gradient(g, dy, x, w, window)
    if wanted[1]:
        dw = _kernel_gradient(g, dy, x, window) if transposed else _kernel_gradient(g, x, dy, window)
    if wanted[2]:
        db = reduced(g, "ReduceSum", dy, [0, *range(2, dy.ndim)], dy.ndim, keep=False)
    return [dx, dw, db]


def _image_gradient(g: Graph, dy: Value, x: Value, w: Value, v: Window) -> str:
    image, result = statics(x.shape[2:]), statics(dy.shape[2:])
    reached = [
        (r - 1) * s - 2 * p + d * (k - 1) + 1
        for r, s, p, d, k in zip(result, v.stride, v.padding, v.dilation, v.kernel, strict=True)
    ]
    extra = [i - r for i, r in zip(image, reached, strict=True)]
    if len(image) == 2 and v.groups == 1 and prod(statics(w.shape)) >= LARGE and prod(result) < FEW:
        return _image_by_product(g, dy, image, w, v)
    return g("ConvTranspose", dy, w, output_padding=extra, **v.attributes())


def _image_by_product(g: Graph, dy: Value, image: list[int], w: Value, v: Window) -> str:
    """One matrix product for the whole batch, so that a large kernel is read once and not for every image."""
    filters, area = static(w.shape[0]), prod(statics(dy.shape[2:]))
    right = g("Reshape", g.swap(dy, dy.ndim), g.constant([filters, -1]))
    places = g("Gemm", g("Reshape", w, g.constant([filters, -1])), right, transA=1)
    columns = prod(statics(w.shape[1:]))
    by_image = g("Transpose", g("Reshape", places, g.constant([columns, -1, area])), perm=[1, 0, 2])
    how = {"strides": v.stride, "pads": v.padding * 2, "dilations": v.dilation}
    return g("Col2Im", by_image, g.constant(image), g.constant(v.kernel), **how)


def _kernel_gradient(g: Graph, image: Value, result: Value, v: Window) -> str:
    return _by_products(g, image, result, v) if v.groups == 1 else _by_convolution(g, image, result, v)


def _by_products(g: Graph, image: Value, result: Value, v: Window) -> str:
    """One matrix product per row of the kernel, contracted over batch and area.

    The places of a row are laid out as channels first, so that what is cut out for each row lies in large blocks.
    """
    n, channels, filters = len(v.kernel), static(image.shape[1]), static(result.shape[1])
    reach = statics(result.shape[2:])

    def seen(source: str, axis: int, place: int) -> str:
        """What the kernel's n-th place along an axis sees of the image."""
        start = place * v.dilation[axis]
        end = start + (reach[axis] - 1) * v.stride[axis] + 1
        return g.slice(source, [2 + axis], [start], [end], [v.stride[axis]])

    padded = g("Pad", image, g.constant([0, 0, *v.padding] * 2)) if any(v.padding) else image.name
    source, order = g.swap(padded, image.ndim), [channels]
    whole = max(v.kernel) == 1 and max(v.stride) == 1 and not any(v.padding)
    for axis in reversed(range(1, n)):
        if not whole:
            parts = [seen(source, axis, place) for place in range(v.kernel[axis])]
            source = g("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
        order.insert(0, v.kernel[axis])
    rows = [source] if whole else [seen(source, 0, place) for place in range(v.kernel[0])]
    width = prod(order)
    if width < NARROW and len(rows) > 1:  # too narrow for a product of their own
        rows, width = [g("Concat", *rows, axis=0)], width * len(rows)
    right = g("Reshape", g.swap(result, result.ndim), g.constant([filters, -1]))
    flat = [g("Reshape", row, g.constant([width, -1])) for row in rows]
    if prod(v.kernel) * channels * filters >= LARGE:  # then turning the result around costs more than the products
        products = [g("Gemm", right, row, transB=1) for row in flat]
        joined = g("Concat", *products, axis=1) if len(products) > 1 else products[0]
        places = g("Reshape", joined, g.constant([filters, prod(v.kernel), channels]))
        by_channel = g("Transpose", places, perm=[0, 2, 1])
        return g("Reshape", by_channel, g.constant([filters, channels, *v.kernel]))
    # In this order the runtime repacks dy, which is the smaller of the two.
    products = [g("Gemm", row, right, transB=1) for row in flat]
    joined = g("Concat", *products, axis=0) if len(products) > 1 else products[0]
    places = g("Reshape", joined, g.constant([v.kernel[0], *order, filters]))
    return g("Transpose", places, perm=[1 + n, n, *range(n)])


def _by_convolution(g: Graph, image: Value, result: Value, v: Window) -> str:
    channels = static(image.shape[1]) // v.groups
    n, size, reach = len(v.kernel), statics(image.shape[2:]), statics(result.shape[2:])
    split = g("Reshape", image, g.constant([-1, v.groups, channels, *size]))
    turned = g("Transpose", split, perm=[2, 1, 0, *range(3, 3 + n)])
    source = g("Reshape", turned, g.constant([channels, -1, *size]))
    exchanged = Window(reach, v.dilation, v.padding, v.stride, v.groups)
    dw = g("Conv", source, g.swap(result, result.ndim), **exchanged.attributes())
    found = [
        (i + 2 * p - s * (r - 1) - 1) // d + 1
        for i, p, s, r, d in zip(size, v.padding, v.stride, reach, v.dilation, strict=True)
    ]
    if found != v.kernel:  # a stride that skipped the last rows of the image reaches too far here
        dw = g.slice(dw, list(range(2, 2 + n)), [0] * n, v.kernel, [1] * n)
    return g.swap(dw, 2 + n)
