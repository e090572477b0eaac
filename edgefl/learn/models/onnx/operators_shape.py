"""Rules for operators that only move numbers: views, slices, joins, gathers and scatters."""
# ruff: noqa: PLR0917, ARG001 - these functions have the signatures of torch's operators

from typing import Any

from edgefl.learn.models.onnx.graph import END, ONNX_TYPES, Graph, Value
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import Dim, UncoveredError, axes, same, static, statics


@on(aten.view.default, "_unsafe_view.default", aten.reshape.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.squeeze.default, aten.unsqueeze.default)  # fmt: skip
def _view(g: Graph, x: Value, *_: Any) -> str:
    return g.reshape(x, g.out.shape)


@on(aten.permute.default)
def _permute(g: Graph, x: Value, order: list[int]) -> str:
    return g.transpose(x, axes(order, x.ndim))


@on(aten.t.default)
def _t(g: Graph, x: Value) -> str:
    return g.transpose(x, [1, 0]) if x.ndim == 2 else x.name


@on(aten.transpose.int)
def _transpose(g: Graph, x: Value, a: int, b: int) -> str:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return g.transpose(x, order)


@on(aten.expand.default)
def _expand(g: Graph, x: Value, *_: Any, **__: Any) -> str:
    return x.name if same(x.shape, g.out.shape) else g("Expand", x, g.sizes(g.out.shape))


@on(aten.repeat.default)
def _repeat(g: Graph, x: Value, times: list[Dim]) -> str:
    lead = [1] * (len(times) - x.ndim)
    return g("Tile", g.reshape(x, [*lead, *x.shape]), g.sizes(times))


@on(aten.cat.default)
def _cat(g: Graph, parts: list[Value], dim: int = 0) -> str:
    full = [p for p in parts if not (p.ndim == 1 and str(p.shape[0]) == "0")]
    return g("Concat", *full, axis=dim % g.out.ndim) if len(full) > 1 else full[0].name


@on(aten.stack.default)
def _stack(g: Graph, parts: list[Value], dim: int = 0) -> str:
    axis = dim % g.out.ndim
    return g("Concat", *(g("Unsqueeze", p, g.constant([axis])) for p in parts), axis=axis)


@on(aten.slice.Tensor)
def _slice(g: Graph, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
    if same(x.shape, g.out.shape) and step == 1:
        return x.name
    first, last = static(start or 0), END if end is None else min(static(end), END)
    return g.slice(x, [dim % x.ndim], [first], [last], [step])


@on(aten.select.int)
def _select(g: Graph, x: Value, dim: int, index: int) -> str:
    return g("Gather", x, g.constant(index), axis=dim % x.ndim)


@on(aten.unbind.int)
def _unbind(g: Graph, x: Value, dim: int = 0) -> list[str]:
    return [g("Gather", x, g.constant(i), axis=dim % x.ndim) for i in range(static(x.shape[dim]))]


@on(aten.split.Tensor, aten.split_with_sizes.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default)
def _split(g: Graph, x: Value, _: Any, dim: int = 0) -> list[str]:
    parts = [static(p.shape[dim]) for p in g.out]
    if len(parts) == 1:
        return [x.name]
    return g.several("Split", x, g.constant(parts), axis=dim % x.ndim, n=len(parts))


@on(aten.flip.default)
def _flip(g: Graph, x: Value, dims: list[int]) -> str:
    n = len(dims)
    return g.slice(x, axes(dims, x.ndim), [-1] * n, [-END] * n, [-1] * n)


@on(aten.roll.default)
def _roll(g: Graph, x: Value, shifts: list[int], dims: list[int]) -> str:
    result = x.name
    for shift, dim in zip(shifts, axes(dims, x.ndim), strict=True):
        size = static(x.shape[dim])
        cut = (size - shift) % size
        tail, head = (g.slice(result, [dim], [a], [b], [1]) for a, b in ((cut, size), (0, cut)))
        result = g("Concat", tail, head, axis=dim)
    return result


@on(aten.constant_pad_nd.default)
def _pad(g: Graph, x: Value, pad: list[int], value: float = 0) -> str:
    keep = [0] * (x.ndim - len(pad) // 2)
    sides = [*keep, *pad[0::2][::-1], *keep, *pad[1::2][::-1]]
    return g("Pad", x, g.constant(sides), g.constant(value, x.dtype))


@on(aten.slice_backward.default)
def _slice_backward(g: Graph, dy: Value, _: Any, dim: int, start: Any, __: Any, step: int) -> str:
    return dy.name if same(dy.shape, g.out.shape) else _embed(g, dy, dim, start, step)


def _embed(g: Graph, x: Value, dim: int, start: Any, step: int) -> str:
    """Zeros of the shape of the result, with `x` at every `step`-th place from `start` on along `dim`."""
    dim %= x.ndim
    size, length = static(g.out.shape[dim]), static(x.shape[dim])
    first = static(start or 0)
    first = min(max(first + size if first < 0 else first, 0), size)
    spaced = x.name
    if step > 1 and length:  # each number is followed by step - 1 zeros, written as an axis of its own
        shape = x.shape
        opened = g.reshape(x, [*shape[: dim + 1], 1, *shape[dim + 1 :]])
        gaps = [0] * (2 * (x.ndim + 1))
        gaps[x.ndim + 1 + dim + 1] = step - 1
        spaced = g.reshape(g("Pad", opened, g.constant(gaps)), [*shape[:dim], length * step, *shape[dim + 1 :]])
        spaced = g.slice(spaced, [dim], [0], [(length - 1) * step + 1], [1])
        length = (length - 1) * step + 1
    sides = [0] * (2 * x.ndim)
    sides[dim], sides[x.ndim + dim] = first, size - first - length
    return g("Pad", spaced, g.constant(sides)) if any(sides) else spaced


@on(aten.slice_scatter.default)
def _slice_scatter(
    g: Graph, x: Value, part: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    if same(x.shape, part.shape):
        return part.name
    if step != 1:
        raise UncoveredError("slice_scatter with a step")
    dim %= x.ndim
    size, first = static(x.shape[dim]), static(start or 0)
    first = first + size if first < 0 else first
    last = first + static(part.shape[dim])
    before = [g.slice(x, [dim], [0], [first], [1])] if first else []
    after = [g.slice(x, [dim], [last], [END], [1])] if last < size else []
    return g("Concat", *before, part, *after, axis=dim)


@on(aten.select_backward.default)
def _select_backward(g: Graph, dy: Value, _: Any, dim: int, index: int) -> str:
    ndim = g.out.ndim
    dim %= ndim
    size = static(g.out.shape[dim])
    sides = [0] * (2 * ndim)
    sides[dim], sides[ndim + dim] = index % size, size - 1 - index % size
    return g("Pad", g("Unsqueeze", dy, g.constant([dim])), g.constant(sides))


@on(aten.select_scatter.default)
def _select_scatter(g: Graph, x: Value, part: Value, dim: int, index: int) -> str:
    dim %= x.ndim
    size = static(x.shape[dim])
    index %= size
    before = [g.slice(x, [dim], [0], [index], [1])] if index else []
    after = [g.slice(x, [dim], [index + 1], [END], [1])] if index + 1 < size else []
    return g("Concat", *before, g("Unsqueeze", part, g.constant([dim])), *after, axis=dim)


@on(aten.as_strided.default)
def _as_strided(g: Graph, x: Value, size: list[Dim], stride: list[Dim], offset: Any = 0) -> str:
    _keeps_order(size, stride, offset)
    return g.reshape(x, g.out.shape)


@on(aten.as_strided_scatter.default)
def _as_strided_scatter(g: Graph, x: Value, part: Value, size: list[Dim], stride: list[Dim], offset: Any = 0) -> str:
    _keeps_order(size, stride, offset)
    return g.reshape(part, x.shape)


def _keeps_order(size: list[Dim], stride: list[Dim], offset: Any) -> None:
    """Refuse a view by strides unless it has every number in its order."""
    plain: list[Dim] = []
    step: Dim = 1
    for d in reversed(size):
        plain.insert(0, step)
        step = step * d
    moved = any(str(d) != "1" and str(s) != str(p) for d, s, p in zip(size, stride, plain, strict=True))
    if moved or offset:
        raise UncoveredError("as_strided that moves numbers")


@on(aten.gather.default)
def _gather(g: Graph, x: Value, dim: int, index: Value, **_: Any) -> str:
    return g("GatherElements", x, index, axis=dim % x.ndim)


@on(aten.index_select.default)
def _index_select(g: Graph, x: Value, dim: int, index: Value) -> str:
    return g("Gather", x, index, axis=dim % x.ndim)


@on(aten.scatter.src)
def _scatter(g: Graph, x: Value, dim: int, index: Value, source: Value) -> str:
    return g("ScatterElements", x, index, source, axis=dim % x.ndim)


@on(aten.scatter.value)
def _scatter_value(g: Graph, x: Value, dim: int, index: Value, value: float) -> str:
    source = g("Expand", g.constant(value, x.dtype), g("Shape", index))
    return g("ScatterElements", x, index, source, axis=dim % x.ndim)


@on(aten.scatter_add.default)
def _scatter_add(g: Graph, x: Value, dim: int, index: Value, source: Value) -> str:
    return g("ScatterElements", x, index, source, axis=dim % x.ndim, reduction="add")


@on(aten.embedding.default)
def _embedding(g: Graph, table: Value, index: Value, *_: Any) -> str:
    return g("Gather", table, index, axis=0)


@on(aten.embedding_dense_backward.default)
def _embedding_backward(g: Graph, dy: Value, index: Value, rows: Dim, padding: int, scaled: bool) -> str:
    if scaled:
        raise UncoveredError("embeddings scaled by frequency")
    width = static(dy.shape[-1])
    updates, where = g("Reshape", dy, g.constant([-1, width])), g("Reshape", index, g.constant([-1, 1]))
    if padding >= 0:
        real = g("Not", g("Equal", where, g.constant(padding)))
        updates = g("Mul", updates, g("Cast", real, to=ONNX_TYPES[dy.dtype]))
    zeros = g.filled(statics([rows, width]), 0, dy.dtype)
    return g("ScatterND", zeros, where, updates, reduction="add")
