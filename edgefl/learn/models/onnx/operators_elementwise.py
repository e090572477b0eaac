"""Rules for operators that work number by number, and for making and copying tensors."""

from math import frexp, log, pi, sqrt
from typing import Any

import numpy as np
import torch
from onnx import numpy_helper

from edgefl.learn.models.onnx.graph import NUMPY_TYPES, ONNX_TYPES, DropoutMask, Graph, Number, Value
from edgefl.learn.models.onnx.rules import RULES, Rule, aten, on
from edgefl.learn.models.onnx.sizes import is_symbolic, same, static, statics

UNARY = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf",
    "abs": "Abs", "neg": "Neg", "reciprocal": "Reciprocal", "sign": "Sign", "sgn": "Sign", "sin": "Sin", "cos": "Cos",
    "atan": "Atan",    "floor": "Floor", "ceil": "Ceil", "round": "Round", "logical_not": "Not", "bitwise_not": "Not",
}  # fmt: skip
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min"}
COMPARE = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
BEND, CUBIC = sqrt(2 / pi), 0.044715  # of GELU's approximation by a tanh
LOGICAL = {"logical_and": "And", "bitwise_and": "And", "logical_or": "Or", "bitwise_or": "Or"}


def _unary(op: str) -> Rule:
    return lambda g, x: g(op, x)


def _binary(op: str) -> Rule:
    def rule(g: Graph, a: Number, b: Number, alpha: float = 1) -> str:
        dtype = g.out.dtype
        if op == "Div" and isinstance(b, (int, float)) and dtype.is_floating_point and abs(frexp(b)[0]) == 0.5:
            return g("Mul", g.cast(a, dtype), g.constant(1 / b, dtype))  # a power of two: faster and as exact
        left, right = g.cast(a, dtype), g.cast(b, dtype)
        return g(op, left, right if alpha == 1 else g("Mul", right, g.constant(alpha, dtype)))

    return rule


def _compare(op: str) -> Rule:
    def rule(g: Graph, a: Value, b: Any) -> str:
        dtype = torch.result_type(a.fake, b.fake if isinstance(b, Value) else b)
        return g(op, g.cast(a, dtype), g.cast(b, dtype))

    return rule


for _name, _op in UNARY.items():
    on(getattr(aten, _name).default)(_unary(_op))
for _name, _op in BINARY.items():
    _packet = getattr(aten, _name)
    on(*(getattr(_packet, n) for n in ("Tensor", "Scalar", "default") if n in _packet.overloads()))(_binary(_op))
for _name, _op in COMPARE.items():
    on(getattr(aten, _name).Scalar, getattr(aten, _name).Tensor)(_compare(_op))
for _name, _op in LOGICAL.items():
    on(getattr(aten, _name))(_binary(_op))


@on(aten.ne.Scalar, aten.ne.Tensor)
def _not_equal(g: Graph, a: Value, b: Any) -> str:
    return g("Not", RULES[aten.eq.Tensor](g, a, b))


@on(aten.rsub.Scalar, aten.rsub.Tensor)
def _reversed_sub(g: Graph, a: Value, b: Number, alpha: float = 1) -> str:
    dtype = g.out.dtype
    right = g.cast(a, dtype) if alpha == 1 else g("Mul", g.cast(a, dtype), g.constant(alpha, dtype))
    return g("Sub", g.cast(b, dtype), right)


@on(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)
def _pow(g: Graph, x: Value, exponent: Any) -> str:
    if isinstance(exponent, Value):
        return g("Pow", x, g.cast(exponent, x.dtype))
    if exponent == 1:
        return x.name
    if exponent in (2, 3):
        square = g("Mul", x, x)
        return square if exponent == 2 else g("Mul", square, x)
    return g("Pow", x, g.constant(exponent, x.dtype))


@on(aten.rsqrt.default)
def _rsqrt(g: Graph, x: Value) -> str:
    return g("Reciprocal", g("Sqrt", x))


@on(aten.log1p.default)
def _log1p(g: Graph, x: Value) -> str:
    return g("Log", g("Add", x, g.constant(1, x.dtype)))


@on(aten.expm1.default)
def _expm1(g: Graph, x: Value) -> str:
    """Through tanh, which keeps its digits near zero where exp(x) - 1 loses them: e^x - 1 = (e^x + 1) tanh(x/2)."""
    return g("Mul", g("Add", g("Exp", x), g.constant(1, x.dtype)), g("Tanh", g("Mul", x, g.constant(0.5, x.dtype))))


@on(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def _where(g: Graph, condition: Value, a: Number, b: Number) -> str:
    return g("Where", condition, g.cast(a, g.out.dtype), g.cast(b, g.out.dtype))


@on(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(g: Graph, x: Value, mask: Value, value: Number) -> str:
    return g("Where", mask, g.cast(value, x.dtype), x)


@on(aten.clamp.default, aten.hardtanh.default, aten.clamp_min.default)
def _clamp(g: Graph, x: Value, low: float | None = None, high: float | None = None) -> str:
    return g("Clip", x, *("" if v is None else g.constant(v, x.dtype) for v in (low, high)))


@on(aten.clamp.Tensor, aten.clamp_min.Tensor)
def _clamp_tensors(g: Graph, x: Value, low: Value | None = None, high: Value | None = None) -> str:
    result = g.cast(x, g.out.dtype)
    for op, limit in (("Max", low), ("Min", high)):
        result = result if limit is None else g(op, result, g.cast(limit, g.out.dtype))
    return result


@on(aten.gelu.default)
def _gelu(g: Graph, x: Value, *, approximate: str = "none") -> str:
    if approximate == "tanh":
        return g("Mul", x, _half_more(g, x, g("Tanh", _bent(g, x)[1])))
    return g("Mul", x, _half_more(g, x, g("Erf", g("Mul", x, g.constant(sqrt(0.5), x.dtype)))))


@on(aten.gelu_backward.default)
def _gelu_backward(g: Graph, dy: Value, x: Value, *, approximate: str = "none") -> str:
    """From what the forward pass has computed: the derivative of x * p(x) is p + x * p'."""
    if approximate == "tanh":
        square, bent = _bent(g, x)
        y = g("Tanh", bent)
        steepness = g("Add", g("Mul", square, g.constant(3 * CUBIC * BEND / 2, x.dtype)), g.constant(BEND / 2, x.dtype))
        slope = g("Mul", g("Sub", g.constant(1, x.dtype), g("Mul", y, y)), g("Mul", x, steepness))
        return g("Mul", dy, g.early(g("Add", _half_more(g, x, y), slope)))
    u = g("Mul", x, g.constant(sqrt(0.5), x.dtype))
    density = g("Exp", g("Sub", g.constant(-log(pi) / 2, x.dtype), g("Mul", u, u)))
    return g("Mul", dy, g.early(g("Add", _half_more(g, x, g("Erf", u)), g("Mul", u, density))))


def _half_more(g: Graph, x: Value, y: str) -> str:
    return g("Mul", g("Add", y, g.constant(1, x.dtype)), g.constant(0.5, x.dtype))


def _bent(g: Graph, x: Value) -> tuple[str, str]:
    """The square of x, and the polynomial that takes the place of x in the error function's stand-in."""
    square = g("Mul", x, x)
    more = g("Add", g("Mul", square, g.constant(CUBIC * BEND, x.dtype)), g.constant(BEND, x.dtype))
    return square, g("Mul", x, more)


@on(aten.leaky_relu.default)
def _leaky_relu(g: Graph, x: Value, slope: float = 0.01) -> str:
    return g("LeakyRelu", x, alpha=float(slope))


@on(aten.hardtanh_backward.default)
def _hardtanh_backward(g: Graph, dy: Value, x: Value, low: float, high: float) -> str:
    inside = g("And", g("Greater", x, g.constant(low, x.dtype)), g("Less", x, g.constant(high, x.dtype)))
    return g("Mul", dy, g("Cast", inside, to=ONNX_TYPES[dy.dtype]))


def _full(g: Graph, value: Any) -> str:
    shape, dtype = list(g.out.shape), g.out.dtype
    if not any(is_symbolic(d) for d in shape) and g.out.numel() <= 1:
        return g.constant(np.full(statics(shape), value), dtype)
    return g.filled(shape, value, dtype)


@on(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty_like.default,
    aten.empty.memory_format,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.empty_strided.default,
)
def _zeros(g: Graph, *_: Any, **__: Any) -> str:
    return _full(g, 0)


@on(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def _ones(g: Graph, *_: Any, **__: Any) -> str:
    return _full(g, 1)


@on(aten.full.default, aten.full_like.default, aten.fill.Scalar)
def _filled(g: Graph, _: Any, value: Any, **__: Any) -> str:
    return _full(g, value)


@on(aten.new_full.default)
def _new_full(g: Graph, _: Any, __: Any, value: Any, **___: Any) -> str:
    return _full(g, value)


@on(aten.scalar_tensor.default)
def _scalar(g: Graph, value: Number, **_: Any) -> str:
    return g.cast(value, g.out.dtype)


@on(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(g: Graph, *bounds: float, **_: Any) -> str:
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    if is_symbolic(g.out.shape[0]) and (start, step) == (0, 1):  # numbers the samples of a batch
        ones = numpy_helper.from_array(np.ones(1, NUMPY_TYPES[g.out.dtype]))
        return g("CumSum", g("ConstantOfShape", g.sizes(g.out.shape), value=ones), g.constant(0), exclusive=1)
    return g.constant(start + step * np.arange(static(g.out.shape[0])), g.out.dtype)


@on(aten.clone.default, aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default, aten.lift_fresh.default)
def _same(_: Graph, x: Value, **__: Any) -> str:
    return x.name


@on("_to_copy.default")
def _to(g: Graph, x: Value, **_: Any) -> str:
    return g.cast(x, g.out.dtype)


@on(aten.copy.default)
def _copy(g: Graph, target: Value, source: Value, *_: Any) -> str:
    cast = g.cast(source, target.dtype)
    return cast if same(source.shape, target.shape) else g("Expand", cast, g.sizes(target.shape))


@on(aten.native_dropout.default)
def _dropout(g: Graph, x: Value, p: float, train: bool | None = True) -> list[str]:
    if not train or p == 0:
        return [x.name, g.constant(True, torch.bool)]
    mask = _mask(g, g.out[0], 1 - p)
    scaled = g("Mul", mask, g.constant(1 / (1 - p) if p < 1 else 0, x.dtype))
    return [g("Mul", x, scaled), mask]


@on(aten.native_dropout_backward.default)
def _dropout_backward(g: Graph, dy: Value, mask: Value, scale: float) -> str:
    return g("Mul", dy, g("Mul", mask, g.constant(scale, dy.dtype)))


@on(aten.bernoulli.p, aten.bernoulli.default)
def _bernoulli(g: Graph, x: Value, p: Any = None, **_: Any) -> str:
    return _mask(g, x.fake, float(p))


def _mask(g: Graph, like: torch.Tensor, keep: float) -> str:
    value = Value(f"mask.{len(g.noise)}", like.to(torch.float32))
    g.noise.append(DropoutMask(value, keep))
    return value.name
