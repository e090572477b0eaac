"""Rules for group and layer normalisation; batch normalisation reaches us already taken apart."""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's operators

from math import prod

import numpy as np
from onnx import numpy_helper

from edgefl.learn.models.onnx.graph import NUMPY_TYPES, Graph, Value
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import Dim, static, statics


@on(aten.native_group_norm.default)
def _group_norm(
    g: Graph,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    _: Dim,
    channels: Dim,
    area: Dim,
    groups: int,
    eps: float,
) -> list[str]:
    c, size = static(channels), static(channels) // groups * static(area)
    rows = g("Reshape", x, g.constant([-1, groups, size]))
    mean = g("ReduceMean", rows, g.constant([2]), keepdims=1)
    centred = g("Sub", rows, mean)
    variance = g("ReduceMean", g("Mul", centred, centred), g.constant([2]), keepdims=1)
    rate = g("Reciprocal", g("Sqrt", g("Add", variance, g.constant(eps, x.dtype))))
    statistics = [g("Squeeze", v, g.constant([2])) for v in (mean, rate)]
    if scale is None:
        return [g.reshape(g("Mul", centred, rate), x.shape), *statistics]
    by_group = g.constant([1, groups, c // groups])
    factor = g("Mul", rate, g("Reshape", scale, by_group))
    moved = g("Mul", mean, factor)
    offset = g("Neg", moved) if shift is None else g("Sub", g("Reshape", shift, by_group), moved)
    return [_scaled(g, x, factor, offset), *statistics]


def _scaled(g: Graph, x: Value, factor: str, offset: str) -> str:
    """Each channel of each sample times its factor, plus its offset, in one pass over the image.

    Which is what a batch norm does to a single sample with that many channels, mean zero and variance one.
    """
    channels, flat = g.numel(x.shape[:2]), g.constant([-1])
    zeros = g("ConstantOfShape", channels, value=numpy_helper.from_array(np.zeros(1, NUMPY_TYPES[x.dtype])))
    ones = g("ConstantOfShape", channels, value=numpy_helper.from_array(np.ones(1, NUMPY_TYPES[x.dtype])))
    image = g("Reshape", x, g.constant([1, -1, prod(statics(x.shape[2:]))]))
    scaling = g("Reshape", factor, flat), g("Reshape", offset, flat)
    return g.reshape(g("BatchNormalization", image, *scaling, zeros, ones, epsilon=0.0), x.shape)


@on(aten.native_group_norm_backward.default)
def _group_norm_backward(
    g: Graph, dy: Value, x: Value, mean: Value, rate: Value, scale: Value | None, _: Dim, channels: Dim, area: Dim,
    groups: int, output_mask: list[bool],
) -> list[str | None]:  # fmt: skip
    """Through the sums of dy and of dy * x over each channel's area, which all three gradients are made of."""
    c, per = static(channels), static(channels) // groups
    spatial, by_group = list(range(2, x.ndim)), g.constant([-1, groups, per])
    m, r = (g("Unsqueeze", v, g.constant([2])) for v in (mean, rate))

    def over_area(v: str | Value) -> str:
        # Rows of channels have no area, and to ReduceSum no axes are all of them.
        return g("Reshape", g("ReduceSum", v, g.constant(spatial), keepdims=0) if spatial else v, by_group)

    sum_dyx, sum_dy = over_area(g("Mul", dy, x)), over_area(dy)

    def to_x() -> str:
        gamma = g.constant(np.ones([1, groups, per]), x.dtype)
        if scale is not None:
            gamma = g("Reshape", scale, g.constant([1, groups, per]))
        inverse = g.constant(1.0 / (per * static(area)), x.dtype)
        dyx, d = (g("ReduceSum", g("Mul", v, gamma), g.constant([2]), keepdims=1) for v in (sum_dyx, sum_dy))
        cube = g("Mul", g("Mul", r, r), r)
        slope = g("Mul", g("Mul", g("Sub", g("Mul", d, m), dyx), cube), inverse)
        offset = g("Neg", g("Add", g("Mul", slope, m), g("Mul", g("Mul", d, r), inverse)))

        def full(v: str) -> str:
            return g("Expand", v, g.constant([1, groups, per]))

        bent = g("Mul", x, g("Reshape", full(slope), g.constant([-1, c] + [1] * (x.ndim - 2))))
        return g("Add", _scaled(g, dy, g("Mul", r, gamma), full(offset)), bent)

    def over_batch(v: str) -> str:
        return g("Reshape", g("ReduceSum", v, g.constant([0]), keepdims=0), g.constant([c]))

    return [
        to_x() if output_mask[0] else None,
        over_batch(g("Mul", g("Sub", sum_dyx, g("Mul", sum_dy, m)), r)) if output_mask[1] else None,
        over_batch(sum_dy) if output_mask[2] else None,
    ]


@on(aten.native_layer_norm.default)
def _layer_norm(
    g: Graph, x: Value, shape: list[Dim], scale: Value | None, shift: Value | None, eps: float
) -> list[str]:
    gamma = scale if scale is not None else g.constant(np.ones(statics(shape)), x.dtype)
    given = [x, gamma] if shift is None else [x, gamma, shift]
    return g.several("LayerNormalization", *given, axis=-len(shape), epsilon=float(eps), n=3)


@on(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    g: Graph, dy: Value, x: Value, shape: list[Dim], mean: Value, rate: Value, scale: Value | None, _: Value | None,
    output_mask: list[bool],
) -> list[str | None]:  # fmt: skip
    outer = x.ndim - len(shape)
    inside, outside = g.constant(list(range(outer, x.ndim))), g.constant(list(range(outer)))
    normal = g("Mul", g("Sub", x, mean), rate)
    product = g("Mul", dy, normal)
    dx = None
    if output_mask[0]:
        scaled = g("Mul", dy, scale) if scale else dy.name
        straight, along = _minus_means(g, [dy.name, product], scale, inside, prod(statics(shape)), x)
        dx = g("Mul", g("Add", g("Add", scaled, straight), g("Mul", normal, along)), rate)
    return [
        dx,
        g("ReduceSum", product, outside, keepdims=0) if output_mask[1] else None,
        g("ReduceSum", dy, outside, keepdims=0) if output_mask[2] else None,
    ]


def _minus_means(g: Graph, values: list[str], scale: Value | None, inside: str, n: int, x: Value) -> list[str]:
    """Less the means of the scaled values over the normed axes: where there is one such axis, as a product."""
    if scale is None or scale.ndim != 1:
        scaled = [g("Mul", v, scale) if scale else v for v in values]
        return [g("Neg", g("ReduceMean", v, inside, keepdims=1)) for v in scaled]
    column = g("Reshape", g("Mul", scale, g.constant(-1 / n, x.dtype)), g.constant([n, 1]))
    return [g("MatMul", v, column) for v in values]
