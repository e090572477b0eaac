"""Rules for what looks for the largest, the smallest or the middle of several numbers."""

from typing import Any

from edgefl.learn.models.onnx.graph import Graph, Operand, Value
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import UncoveredError, axes, static


def _top(g: Graph, x: Operand, k: int, axis: int, *, largest: bool) -> list[str]:
    """The first `k` of an axis in falling or rising order, and where they were; of equals the first comes first."""
    return g.several("TopK", x, g.constant([k]), n=2, axis=axis, largest=int(largest), sorted=1)


@on(aten.topk.default)
def _topk(g: Graph, x: Value, k: int, dim: int = -1, largest: bool = True, _: bool = True) -> list[str]:
    return _top(g, x, static(k), _axis(x, dim), largest=largest)


@on(aten.sort.default)
def _sort(g: Graph, x: Value, dim: int = -1, descending: bool = False) -> list[str]:
    return _top(g, x, static(x.shape[dim]), _axis(x, dim), largest=descending)


@on(aten.sort.stable)
def _stable_sort(g: Graph, x: Value, *, stable: Any = None, dim: int = -1, descending: bool = False) -> list[str]:
    del stable  # it always is
    return _sort(g, x, dim, descending)


@on(aten.kthvalue.default)
def _kth(g: Graph, x: Value, k: int, dim: int = -1, keep: bool = False) -> list[str]:
    axis = _axis(x, dim)
    first = _top(g, x, static(k), axis, largest=False)
    last = [g.slice(part, [axis], [static(k) - 1], [static(k)], [1]) for part in first]
    return last if keep else [g("Squeeze", part, g.constant([axis])) for part in last]


@on(aten.median.dim)
def _median(g: Graph, x: Value, dim: int, keep: bool = False) -> list[str]:
    """The lower one of two in the middle."""
    return _kth(g, x, (static(x.shape[dim]) + 1) // 2, dim, keep)


@on(aten.max.dim)
def _max(g: Graph, x: Value, dim: int, keep: bool = False) -> list[str]:
    values = g("ReduceMax", x, g.constant(axes(dim, x.ndim)), keepdims=int(keep))
    return [values, g("ArgMax", x, axis=dim % x.ndim, keepdims=int(keep))]


@on(aten.min.dim)
def _min(g: Graph, x: Value, dim: int, keep: bool = False) -> list[str]:
    values = g("ReduceMin", x, g.constant(axes(dim, x.ndim)), keepdims=int(keep))
    return [values, g("ArgMax", g("Neg", x), axis=dim % x.ndim, keepdims=int(keep))]


@on(aten.argmax.default)
def _argmax(g: Graph, x: Value, dim: int | None = None, keep: bool = False) -> str:
    return g("ArgMax", x, axis=_axis(x, dim), keepdims=int(keep))


@on(aten.argmin.default)
def _argmin(g: Graph, x: Value, dim: int | None = None, keep: bool = False) -> str:
    return g("ArgMax", g("Neg", x), axis=_axis(x, dim), keepdims=int(keep))


def _axis(x: Value, dim: int | None) -> int:
    if dim is None or not x.ndim:
        raise UncoveredError("it mixes the samples of a batch")
    return dim % x.ndim
