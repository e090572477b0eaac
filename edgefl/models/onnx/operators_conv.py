"""Rules for convolutions and their gradients.

The gradient of the image is the transposed convolution of dy; the gradient of the kernel is a convolution of the
image with dy whose batch and channel axes are exchanged, where stride and dilation change places. A transposed
convolution is the same with image and result exchanged.
"""

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from edgefl.models.onnx.graph import Graph, Value
from edgefl.models.onnx.rules import aten, on
from edgefl.models.onnx.sizes import Dim, spread, static, statics

GEMM_CHANNELS = 8  # from so many channels on, one product per place of the kernel is faster than a convolution


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
        db = g("ReduceSum", dy, g.constant([0, *range(2, dy.ndim)]), keepdims=0)
    return [dx, dw, db]


def _image_gradient(g: Graph, dy: Value, x: Value, w: Value, v: Window) -> str:
    image, result = statics(x.shape[2:]), statics(dy.shape[2:])
    reached = [
        (r - 1) * s - 2 * p + d * (k - 1) + 1
        for r, s, p, d, k in zip(result, v.stride, v.padding, v.dilation, v.kernel, strict=True)
    ]
    extra = [i - r for i, r in zip(image, reached, strict=True)]
    return g("ConvTranspose", dy, w, output_padding=extra, **v.attributes())


def _kernel_gradient(g: Graph, image: Value, result: Value, v: Window) -> str:
    channels = static(image.shape[1]) // v.groups
    if v.groups == 1 and (channels >= GEMM_CHANNELS or max(v.kernel) == 1):
        return _by_products(g, image, result, v)
    return _by_convolution(g, image, result, v, channels)


def _by_products(g: Graph, image: Value, result: Value, v: Window) -> str:
    """One matrix product per place of the kernel, contracted over batch and area."""
    n, channels, filters = len(v.kernel), static(image.shape[1]), static(result.shape[1])
    spatial, reach = list(range(2, 2 + n)), statics(result.shape[2:])
    padded = g("Pad", image, g.constant([0, 0, *v.padding] * 2)) if any(v.padding) else image.name
    source = g.swap(padded, image.ndim)
    rows = g("Reshape", g.swap(result, result.ndim), g.constant([filters, -1]))
    whole = max(v.kernel) == 1 and max(v.stride) == 1 and not any(v.padding)
    parts = []
    for place in product(*(range(k) for k in v.kernel)):
        start = [i * d for i, d in zip(place, v.dilation, strict=True)]
        end = [a + (r - 1) * s + 1 for a, r, s in zip(start, reach, v.stride, strict=True)]
        seen = source if whole else g.slice(source, spatial, start, end, v.stride)
        parts.append(g("Gemm", rows, g("Reshape", seen, g.constant([channels, -1])), transB=1))
    joined = g("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    by_place = g("Reshape", joined, g.constant([filters, prod(v.kernel), channels]))
    return g("Reshape", g("Transpose", by_place, perm=[0, 2, 1]), g.constant([filters, channels, *v.kernel]))


def _by_convolution(g: Graph, image: Value, result: Value, v: Window, channels: int) -> str:
    n, size, reach = len(v.kernel), statics(image.shape[2:]), statics(result.shape[2:])
    source = g.swap(image, image.ndim)
    if v.groups > 1:
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
