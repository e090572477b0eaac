"""The rules of operators that walk over images: convolutions and pooling."""

from dataclasses import dataclass
from math import prod

from edgefl.learn.models.onnx_file import INT64
from edgefl.learn.models.onnx_rules import on
from edgefl.learn.models.onnx_values import REALS, OnnxCall, ValueType, need, sized

FAR = 2**31  # of a stride, padding or dilation: what is added up from them stays a number of 64 bits

FEW = 64  # channels; with one alone a convolution makes that many times fewer multiplications a second
POOL = 64  # multiplications of large matrices in the time of one comparison


@dataclass(frozen=True, slots=True)
class KernelWindow:
    """How a kernel walks over an image."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def reach(self) -> list[int]:
        """How much of an image the kernel covers."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def padding(self) -> list[int]:
        n = len(self.kernel)
        return [a + b for a, b in zip(self.pads[:n], self.pads[n:], strict=True)]

    def over(self, image: tuple[int, ...]) -> list[int]:
        """How many places it has on an image."""
        sizes = zip(image, self.padding, self.reach, self.strides, strict=True)
        places = [(i + p - r) // s + 1 for i, p, r, s in sizes]
        need(all(n > 0 for n in places), f"a kernel that does not fit on {image}")
        return places


def _window(c: OnnxCall, n: int, kernel: tuple[int, ...] | None = None) -> KernelWindow:
    ones = (1,) * n
    window = KernelWindow(
        c.numbers("kernel_shape", ones) if kernel is None else kernel,
        c.numbers("strides", ones),
        c.numbers("pads", (0,) * (2 * n)),
        c.numbers("dilations", ones),
    )
    need(n and len(window.kernel) == n, "no kernel")
    need(all(v > 0 for v in (*window.kernel, *window.strides, *window.dilations)), "a kernel of no size")
    need(all(v >= 0 for v in window.pads), "padding below zero")
    need(max(*window.strides, *window.pads, *window.dilations) < FAR, "a kernel that walks too far")
    return window


def _image(c: OnnxCall) -> ValueType:
    need(c[0].type in REALS and len(c[0].shape) >= 3, "only for images of real numbers")
    return c[0]


@on("Conv", inputs=(2, 3), attributes="kernel_shape strides pads dilations group")
def _conv(c: OnnxCall) -> list[ValueType]:
    x, w = _image(c), c[1]
    need(w.type == x.type and len(w.shape) == len(x.shape), f"a kernel {w.shape} for {x.shape}")
    v, groups = _window(c, len(x.shape) - 2), c.number("group", 1)
    need(w.shape[2:] == v.kernel, "a kernel of another shape than it says")
    need(groups > 0 and x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0, "channels that do not fit")
    need(not c.has(2) or (c[2].type == x.type and c[2].shape == w.shape[:1]), "a bias that does not fit")
    area = v.over(x.shape[2:])
    result = sized(x.type, [x.shape[0], w.shape[0], *area])
    c.work = result.count * prod(w.shape[1:]) * (1 + FEW // max(1, w.shape[0] // groups))
    if w.shape[0] // groups > prod(area):  # then onnxruntime unfolds the whole image, otherwise a part at a time
        c.scratch = prod(w.shape[1:]) * prod(area) * 4
    return [result]


@on("ConvTranspose", inputs=(2, 3), attributes="kernel_shape strides pads dilations group output_padding")
def _conv_transpose(c: OnnxCall) -> list[ValueType]:
    x, w = _image(c), c[1]
    need(w.type == x.type and len(w.shape) == len(x.shape), f"a kernel {w.shape} for {x.shape}")
    n = len(x.shape) - 2
    v, groups, extra = _window(c, n), c.number("group", 1), c.numbers("output_padding", (0,) * n)
    need(w.shape[2:] == v.kernel, "a kernel of another shape than it says")
    need(0 < groups <= w.shape[0] == x.shape[1] and w.shape[0] % groups == 0, "channels that do not fit")
    need(not c.has(2) or (c[2].type == x.type and c[2].shape == (w.shape[1] * groups,)), "a bias that does not fit")
    need(all(0 <= e < max(s, d) for e, s, d in zip(extra, v.strides, v.dilations, strict=True)), "too much added")
    sizes = zip(x.shape[2:], v.strides, v.reach, v.padding, extra, strict=True)
    area = [(i - 1) * s + r - p + e for i, s, r, p, e in sizes]
    need(all(d > 0 for d in area), "a result of no size")
    slower = 4 + (FEW if groups > 1 else 4 * FEW) // (w.shape[0] // groups)  # adding up an image is slow
    c.work, c.scratch = x.count * prod(w.shape[1:]) * slower, prod(w.shape[1:]) * prod(x.shape[2:]) * 4
    return [sized(x.type, [x.shape[0], w.shape[1] * groups, *area])]


@on("MaxPool", inputs=(1, 1), attributes="kernel_shape strides pads dilations", results=2)
@on("AveragePool", inputs=(1, 1), attributes="kernel_shape strides")
def _pool(c: OnnxCall) -> list[ValueType]:
    x = _image(c)
    v = _window(c, len(x.shape) - 2)
    need(all(p < r for p, r in zip(v.pads, v.reach * 2, strict=True)), "padding as wide as the kernel")
    result = sized(x.type, [*x.shape[:2], *v.over(x.shape[2:])])
    c.work = result.count * prod(v.kernel) * POOL
    return [result, sized(INT64, result.shape)][: c.results]


@on("MaxUnpool", inputs=(2, 2), attributes="kernel_shape strides")
def _unpool(c: OnnxCall) -> list[ValueType]:
    """Older versions of onnxruntime write wherever the second input says, so it must come straight from a Clip."""
    x, where = _image(c), c[1]
    v = _window(c, len(x.shape) - 2)
    need(where.type == INT64 and where.shape == x.shape, "as many numbers as places")
    area = [(d - 1) * s + k for d, s, k in zip(x.shape[2:], v.strides, v.kernel, strict=True)]
    result = sized(x.type, [*x.shape[:2], *area])
    low, high = where.within or (-1, -1)
    need(0 <= low <= high < result.count or not result.count, "places that are not clipped to the result")
    return [result]


@on("Col2Im", inputs=(3, 3), attributes="strides pads dilations")
def _col2im(c: OnnxCall) -> list[ValueType]:
    x, image, kernel = c[0], c.wholes(1), c.wholes(2)
    need(x.type in REALS and len(x.shape) == 3 and len(image) == len(kernel) == 2, "only for images of two axes")
    v = _window(c, 2, kernel)
    need(x.shape[1] % prod(kernel) == 0 and x.shape[2] == prod(v.over(image)), "columns that are no image")
    return [sized(x.type, [x.shape[0], x.shape[1] // prod(kernel), *image])]


ENLARGED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@on("Resize", inputs=(3, 3), attributes=" ".join(ENLARGED))
def _resize(c: OnnxCall) -> list[ValueType]:
    """Each number repeated: the one way of resizing that the gradient of a maximum needs."""
    x, scales = _image(c), c[2].numbers
    need(c.attributes == ENLARGED and not c.has(1), "another way of resizing")
    need(scales is not None and len(scales) == len(x.shape), "scales that do not fit")
    factors = [int(s) for s in scales or ()]
    need(factors == list(scales or ()) and all(f >= 1 for f in factors), f"scales {scales}")
    return [sized(x.type, [d * f for d, f in zip(x.shape, factors, strict=True)])]
