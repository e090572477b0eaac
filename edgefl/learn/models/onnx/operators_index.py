"""Rules for picking numbers out of a tensor by index tensors, and for putting gradients back there."""

from typing import NamedTuple

import torch

from edgefl.learn.models.onnx.graph import Graph, Operand, Value
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import Dim, UncoveredError, same


class Pick(NamedTuple):
    """What `x[..., i, j, ...]` means: which axes are picked from, by what, and where the picked ones then stand."""

    axes: list[int]
    where: str  # the places, one after the other in the last axis
    shape: list[Dim]  # of the index tensors together
    at: int  # the axis of the result at which that shape begins

    @property
    def beside(self) -> bool:
        """Whether the axes are the first ones."""
        return self.axes == list(range(len(self.axes)))


def _pick(g: Graph, indices: list[Value | None]) -> Pick:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype == torch.bool for _, index in given):
        raise UncoveredError("a mask as index: how many it picks depends on data")
    axes = [axis for axis, _ in given]
    shape = list(torch.broadcast_shapes(*(index.fake.shape for _, index in given)))  # type: ignore[no-untyped-call]  # torch has no type here
    parts = [_placed(g, index, shape) for _, index in given]
    where = g("Concat", *parts, axis=len(shape)) if len(parts) > 1 else parts[0]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    return Pick(axes, where, shape, axes[0] if together else 0)


def _placed(g: Graph, index: Value, shape: list[Dim]) -> str:
    """An index tensor in the shape of all, with an axis for its own place behind."""
    whole = g.cast(index, torch.int64)
    spread = whole if same(index.shape, shape) else g("Expand", whole, g.sizes(shape))
    return g("Unsqueeze", spread, g.constant([len(shape)]))


def _first(g: Graph, x: Value, pick: Pick) -> tuple[Operand, list[int]]:
    """`x` with the axes that are picked from in front, and that order."""
    order = [*pick.axes, *(axis for axis in range(x.ndim) if axis not in pick.axes)]
    return (x if pick.beside else g.transpose(x, order)), order


@on(aten.index.Tensor)
def _index(g: Graph, x: Value, indices: list[Value | None]) -> str:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) == 1 and given[0][1].dtype != torch.bool:
        return g("Gather", x, g.cast(given[0][1], torch.int64), axis=given[0][0])
    pick = _pick(g, indices)
    picked = g("GatherND", _first(g, x, pick)[0], pick.where)
    return g.transpose(picked, _moved(pick, x))


def _moved(pick: Pick, x: Value) -> list[int]:
    """The order of axes that puts the picked ones where torch has them."""
    n, others = len(pick.shape), x.ndim - len(pick.axes)
    rest = list(range(n, n + others))
    return [*rest[: pick.at], *range(n), *rest[pick.at :]]


@on(aten.index_put.default)
def _index_put(g: Graph, x: Value, indices: list[Value | None], values: Value, accumulate: bool = False) -> str:
    if not accumulate and any(index is not None and index.dtype == torch.bool for index in indices):
        raise UncoveredError("index_put by a mask")
    pick = _pick(g, indices)
    table, order = _first(g, x, pick)
    there = _moved(pick, x)
    shape = [(*pick.shape, *(x.shape[axis] for axis in order[len(pick.axes) :]))[i] for i in there]
    full = values.name if same(values.shape, shape) else g("Expand", values, g.sizes(shape))
    updates = g.transpose(full, [there.index(i) for i in range(len(there))])
    how = {"reduction": "add"} if accumulate else {}
    result = g("ScatterND", table, pick.where, updates, **how)
    return result if pick.beside else g.transpose(result, [order.index(i) for i in range(x.ndim)])
