"""Rules for sums, products of matrices and softmax."""

from math import prod

import torch

from edgefl.models.onnx.graph import ONNX_TYPES, Graph, Value
from edgefl.models.onnx.rules import Rule, aten, on
from edgefl.models.onnx.sizes import axes, is_symbolic, static


def _all(dims: "list[int] | int | None", x: Value) -> list[int]:
    none = dims is None or (isinstance(dims, (list, tuple)) and not dims)
    return list(range(x.ndim)) if none or dims is None else axes(dims, x.ndim)


@on(aten.sum.dim_IntList, aten.sum.default)
def _sum(g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False, dtype: torch.dtype | None = None) -> str:  # noqa: ARG001  torch passes it; the result's type says the same
    values = g.cast(x, g.out.dtype)
    return g("ReduceSum", values, g.constant(_all(dims, x)), keepdims=int(keep)) if x.ndim else values


@on(aten.mean.dim, aten.mean.default)
def _mean(g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False, dtype: torch.dtype | None = None) -> str:  # noqa: ARG001  as above
    return g("ReduceMean", x, g.constant(_all(dims, x)), keepdims=int(keep))


def _extreme(op: str) -> Rule:
    def rule(g: Graph, x: Value, dims: list[int] | None = None, keep: bool = False) -> str:
        return g(op, x, g.constant(_all(dims, x)), keepdims=int(keep))

    return rule


on(aten.amax.default)(_extreme("ReduceMax"))
on(aten.amin.default)(_extreme("ReduceMin"))


@on(aten.max.dim)
def _max(g: Graph, x: Value, dim: int, keep: bool = False) -> list[str]:
    values = g("ReduceMax", x, g.constant(axes(dim, x.ndim)), keepdims=int(keep))
    return [values, g("ArgMax", x, axis=dim % x.ndim, keepdims=int(keep))]


def count(g: Graph, x: Value, dims: list[int]) -> str:
    """How many numbers of `x` a reduction over these axes takes together, as a scalar of its type."""
    fixed = prod(static(x.shape[d]) for d in dims if not is_symbolic(x.shape[d]))
    total = g.constant(fixed, x.dtype)
    for d in dims:
        if is_symbolic(x.shape[d]):
            total = g("Mul", total, g("Cast", g("Squeeze", g.size(x.shape[d])), to=ONNX_TYPES[x.dtype]))
    return total


@on(aten.var_mean.correction)
def _var_mean(g: Graph, x: Value, dims: list[int] | None = None, correction: float = 1, keepdim: bool = False) -> list[str]:
    over = _all(dims, x)
    mean = g("ReduceMean", x, g.constant(over), keepdims=1)
    squares = g("ReduceSumSquare", g("Sub", x, mean), g.constant(over), keepdims=int(keepdim))
    n = count(g, x, over)
    variance = g("Div", squares, g("Sub", n, g.constant(correction, x.dtype)) if correction else n)
    return [variance, mean if keepdim else g("Squeeze", mean, g.constant(over))]


@on(aten._softmax.default)
def _softmax(g: Graph, x: Value, dim: int, _: bool) -> str:
    return g("Softmax", x, axis=dim % x.ndim)


@on(aten._log_softmax.default)
def _log_softmax(g: Graph, x: Value, dim: int, _: bool) -> str:
    return g("LogSoftmax", x, axis=dim % x.ndim)


@on(aten._softmax_backward_data.default)
def _softmax_backward(g: Graph, dy: Value, y: Value, dim: int, _: torch.dtype) -> str:
    weighted = g("Mul", dy, y)
    return g("Sub", weighted, g("Mul", y, g("ReduceSum", weighted, g.constant([dim % y.ndim]), keepdims=1)))


@on(aten._log_softmax_backward_data.default)
def _log_softmax_backward(g: Graph, dy: Value, y: Value, dim: int, _: torch.dtype) -> str:
    total = g("ReduceSum", dy, g.constant([dim % y.ndim]), keepdims=1)
    return g("Sub", dy, g("Mul", g("Exp", y), total))


@on(aten.bmm.default)
def _products(g: Graph, a: Value, b: Value) -> str:
    return g("MatMul", a, b)


def _gemm(g: Graph, a: Value, b: Value, *more: Value, **factors: float) -> str:
    """A product of two matrices that reads a transposed one where it lies."""
    flags = {flag: 1 for flag, v in (("transA", a), ("transB", b)) if g.turned(v)}
    return g("Gemm", g.turned(a) or a, g.turned(b) or b, *more, **flags, **factors)


@on(aten.mm.default)
def _product(g: Graph, a: Value, b: Value) -> str:
    return _gemm(g, a, b)


@on(aten.addmm.default)
def _addmm(g: Graph, c: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> str:
    return _gemm(g, a, b, c, alpha=float(alpha), beta=float(beta))
