"""Rules for sums, products of matrices and softmax."""
# ruff: noqa: PLR0917, ARG001 - these functions have the signatures of torch's operators

from math import prod
from typing import Any

import torch

from edgefl.learn.models.onnx.graph import ONNX_TYPES, Graph, Operand, Value
from edgefl.learn.models.onnx.rules import Rule, aten, on
from edgefl.learn.models.onnx.sizes import UncoveredError, axes, is_batch, is_symbolic, same, static, statics


def _all(dims: "list[int] | int | None", x: Value) -> list[int]:
    none = dims is None or (isinstance(dims, (list, tuple)) and not dims)
    return list(range(x.ndim)) if none or dims is None else axes(dims, x.ndim)


def reduced(g: Graph, op: str, x: Operand, dims: list[int], ndim: int, *, keep: bool) -> str:
    """A sum or mean over these axes; batch and area are taken one after the other, which loses fewer digits."""
    if dims == [0, *range(2, ndim)] and ndim > 2:
        area = g(op, x, g.constant(dims[1:]), keepdims=int(keep))
        return g("ReduceSum" if op == "ReduceSumSquare" else op, area, g.constant([0]), keepdims=int(keep))
    return g(op, x, g.constant(dims), keepdims=int(keep))


@on(aten.sum.dim_IntList, aten.sum.default)
def _sum(
    g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False, dtype: torch.dtype | None = None
) -> str:
    values = g.cast(x, g.out.dtype)
    if x.ndim == 2 and _all(dims, x) == [0]:
        return _column_sums(g, values, x)
    return reduced(g, "ReduceSum", values, _all(dims, x), x.ndim, keep=keep) if x.ndim else values


def _column_sums(g: Graph, values: str, x: Value) -> str:
    """The sums of the columns, as a dense layer's bias has them: of a transposed matrix those of the rows."""
    turned = g.turned(values)
    sums = g("ReduceSum", turned or values, g.constant([1 if turned else 0]), keepdims=0)
    g.known.setdefault(sums, x.fake.new_empty([x.shape[1]], dtype=g.out.dtype))
    return g.reshape(sums, g.out.shape)


@on(aten.mean.dim, aten.mean.default)
def _mean(
    g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False, dtype: torch.dtype | None = None
) -> str:
    return reduced(g, "ReduceMean", x, _all(dims, x), x.ndim, keep=keep)


def _extreme(op: str) -> Rule:
    def rule(g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False) -> str:
        return g(op, x, g.constant(_all(dims, x)), keepdims=int(keep))

    return rule


on(aten.amax.default)(_extreme("ReduceMax"))
on(aten.amin.default)(_extreme("ReduceMin"))


@on(aten.linalg_vector_norm.default)
def _norm(
    g: Graph,
    x: Value,
    order: float = 2,
    dims: list[int] | None = None,
    keep: bool = False,
    *,
    dtype: Any = None,
) -> str:
    op = {1: "ReduceL1", 2: "ReduceL2"}.get(int(order) if order in (1, 2) else 0)
    if op is None:
        raise UncoveredError(f"a norm of order {order}")
    return g(op, x, g.constant(_all(dims, x)), keepdims=int(keep))


def count(g: Graph, x: Value, dims: list[int]) -> str:
    """How many numbers of `x` a reduction over these axes takes together, as a scalar of its type."""
    fixed = prod(static(x.shape[d]) for d in dims if not is_symbolic(x.shape[d]))
    total = g.constant(fixed, x.dtype)
    for d in dims:
        if is_symbolic(x.shape[d]):
            total = g("Mul", total, g("Cast", g("Squeeze", g.size(x.shape[d])), to=ONNX_TYPES[x.dtype]))
    return total


@on(aten.var_mean.correction)
def _var_mean(
    g: Graph, x: Value, dims: list[int] | None = None, correction: float = 1, keepdim: bool = False
) -> list[str]:
    over = _all(dims, x)
    mean = reduced(g, "ReduceMean", x, over, x.ndim, keep=True)
    squares = reduced(g, "ReduceSumSquare", g("Sub", x, mean), over, x.ndim, keep=keepdim)
    n = count(g, x, over)
    variance = g("Div", squares, g("Sub", n, g.constant(correction, x.dtype)) if correction else n)
    return [variance, mean if keepdim else g("Squeeze", mean, g.constant(over))]


@on(aten.var.correction)
def _var(g: Graph, x: Value, dims: list[int] | None = None, correction: float = 1, keepdim: bool = False) -> str:
    return _var_mean(g, x, dims, correction, keepdim)[0]


@on(aten.cumsum.default)
def _cumulated(g: Graph, x: Value, dim: int, dtype: torch.dtype | None = None) -> str:
    return g("CumSum", g.cast(x, g.out.dtype), g.constant(dim % x.ndim))


@on("_softmax.default")
def _softmax(g: Graph, x: Value, dim: int, _: bool) -> str:
    return g("Softmax", x, axis=dim % x.ndim)


@on("_safe_softmax.default")
def _safe_softmax(g: Graph, x: Value, dim: int, _: torch.dtype | None = None) -> str:
    """Zero, not NaN, for rows that a mask covers wholly."""
    y = g("Softmax", x, axis=dim % x.ndim)
    maker = g.makers.get(x.name)
    if maker is None or maker.op not in ("Add", "Where"):  # not masked
        return y
    highest = g("ReduceMax", x, g.constant([dim % x.ndim]), keepdims=1)
    covered = g("Equal", highest, g.constant(float("-inf"), x.dtype))
    return g("Where", covered, g.constant(0, x.dtype), y)


@on("_log_softmax.default")
def _log_softmax(g: Graph, x: Value, dim: int, _: bool) -> str:
    return g("LogSoftmax", x, axis=dim % x.ndim)


@on("_softmax_backward_data.default")
def _softmax_backward(g: Graph, dy: Value, y: Value, dim: int, _: torch.dtype) -> str:
    weighted = g("Mul", dy, y)
    return g("Sub", weighted, g("Mul", y, g("ReduceSum", weighted, g.constant([dim % y.ndim]), keepdims=1)))


@on("_log_softmax_backward_data.default")
def _log_softmax_backward(g: Graph, dy: Value, y: Value, dim: int, _: torch.dtype) -> str:
    total = g("ReduceSum", dy, g.constant([dim % y.ndim]), keepdims=1)
    return g("Sub", dy, g("Mul", g("Exp", y), total))


@on(aten.bmm.default)
def _products(g: Graph, a: Value, b: Value) -> str:
    """Torch flattens stacks of stacks of matrices; as they were, scales and turns can be taken into the product."""
    left, right = _stacks(g, a), _stacks(g, b)
    if not (left and right and same(left.shape[:-2], right.shape[:-2])):
        return g("MatMul", a, b)
    product = g("MatMul", left, right)
    g.known.setdefault(product, left.fake.new_empty([*left.shape[:-1], right.shape[-1]]))
    return g.reshape(product, g.out.shape)


def _stacks(g: Graph, x: Value) -> Value | None:
    """The stacks of matrices that `x`, or what `x` is turned from, is a flat view of."""
    maker = g.makers.get(x.name)
    if maker is None or maker.inputs[0] not in g.known:
        return None
    source = Value(maker.inputs[0], g.known[maker.inputs[0]])
    if maker.op == "Transpose" and maker.attributes["perm"] == [0, 2, 1]:
        inner = _stacks(g, source)
        order = [*range(inner.ndim - 2), inner.ndim - 1, inner.ndim - 2] if inner else []
        return inner and Value(g("Transpose", inner, perm=order), inner.fake.transpose(-1, -2))
    whole = maker.op == "Reshape" and source.ndim > x.ndim and same(source.shape[-2:], x.shape[-2:])
    return source if whole else None


def _gemm(g: Graph, a: Value, b: Value, *more: Value, **factors: float) -> str:
    """A product of two matrices that reads a transposed one where it lies."""
    flags = {flag: 1 for flag, v in (("transA", a), ("transB", b)) if g.turned(v)}
    product = g("Gemm", g.turned(a) or a, g.turned(b) or b, *more, **flags, **factors)
    weights = not any(is_symbolic(d) for d in b.shape)
    if is_batch(a.shape[0]) and weights and all(same(bias.shape, b.shape[1:]) for bias in more):
        g.dense[product] = prod(statics(b.shape))
    return product


@on(aten.mm.default)
def _product(g: Graph, a: Value, b: Value) -> str:
    return _gemm(g, a, b)


@on(aten.addmm.default)
def _addmm(g: Graph, c: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> str:
    return _gemm(g, a, b, c, alpha=float(alpha), beta=float(beta))
