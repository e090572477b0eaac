"""The operators that a graph from outside may use: those that our exporter writes, each with the shape it results in.

A rule refuses everything that our exporter never writes, even if onnxruntime could run it. So its kernels only get
inputs that fit together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from edgefl.learn.models.onnx_file import BOOL, FLOAT, INT64, OnnxTensor
from edgefl.learn.models.onnx_values import (
    REALS,
    TYPES,
    WHOLES,
    OnnxCall,
    Rule,
    ValueType,
    broadcast,
    need,
    place,
    places,
    sized,
)


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator may be called, and the rule for what comes out."""

    least: int  # inputs
    most: int
    attributes: frozenset[str]
    results: int  # at most
    rule: Rule


OPERATORS: dict[str, Operator] = {}
SORT = 1024  # multiplications of large matrices in the time of one comparison while sorting
MANY = 10_000  # inputs or results of Concat, Split and Scan


def on(*names: str, inputs: tuple[int, int], attributes: str = "", results: int = 1) -> Callable[[Rule], Rule]:
    """Register the rule of these operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            OPERATORS[name] = Operator(*inputs, frozenset(attributes.split()), results, rule)
        return rule

    return register


# ---- number by number --------------------------------------------------------------------------------------------


@on("Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Relu", "Erf", "Reciprocal", "Sin", "Cos", "Atan", "Floor", "Ceil",
    "Round", inputs=(1, 1))  # fmt: skip
@on("LeakyRelu", inputs=(1, 1), attributes="alpha")
def _real(c: OnnxCall) -> list[ValueType]:
    need(c[0].type in REALS, "only for real numbers")
    return [sized(c[0].type, c[0].shape)]


@on("Abs", "Neg", "Sign", inputs=(1, 1))
def _signed(c: OnnxCall) -> list[ValueType]:
    need(c[0].type != BOOL, "only for numbers")
    return [sized(c[0].type, c[0].shape)]


@on("Identity", inputs=(1, 1))
def _same(c: OnnxCall) -> list[ValueType]:
    return [c[0]]


@on("Not", inputs=(1, 1))
def _not(c: OnnxCall) -> list[ValueType]:
    need(c[0].type == BOOL, "only for truth values")
    return [sized(BOOL, c[0].shape)]


@on("Softmax", "LogSoftmax", inputs=(1, 1), attributes="axis")
def _softmax(c: OnnxCall) -> list[ValueType]:
    c.axis(len(c[0].shape), -1)
    return _real(c)


def _pair(c: OnnxCall) -> tuple[int, tuple[int, ...]]:
    need(c[0].type == c[1].type, "inputs of different types")
    return c[0].type, broadcast(c[0].shape, c[1].shape)


@on("Add", "Sub", "Mul", "Max", "Min", inputs=(2, 2))
def _arithmetic(c: OnnxCall) -> list[ValueType]:
    type, shape = _pair(c)
    need(type != BOOL, "only for numbers")
    return [sized(type, shape, _followed(c, type))]


@on("Div", inputs=(2, 2))
def _divide(c: OnnxCall) -> list[ValueType]:
    """Whole numbers divided by zero end the process, so what divides them must be known."""
    type, shape = _pair(c)
    need(type != BOOL, "only for numbers")
    if type in WHOLES:
        need(all(n > 0 for n in c.wholes(1)), "whole numbers are divided by what may be zero")
    return [sized(type, shape, _followed(c, type))]


@on("Pow", inputs=(2, 2))
def _power(c: OnnxCall) -> list[ValueType]:
    type, shape = _pair(c)
    need(type in REALS, "only for real numbers")
    return [sized(type, shape)]


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: abs(a) // b * (-1 if a < 0 else 1),
}


def _followed(c: OnnxCall, type: int) -> list[int] | None:
    """What sizes are computed to: whole numbers, one by one or one for all."""
    a, b = c[0], c[1]
    if type not in WHOLES or a.numbers is None or b.numbers is None or c.op not in ARITHMETIC:
        return None
    count = max(a.count, b.count)
    if a.shape != b.shape and sorted((a.count, b.count)) != [1, count]:
        return None
    left, right = (c.wholes(i) if c[i].count == count else c.wholes(i) * count for i in (0, 1))
    return [ARITHMETIC[c.op](x, y) for x, y in zip(left, right, strict=True)]


@on("And", "Or", inputs=(2, 2))
def _logical(c: OnnxCall) -> list[ValueType]:
    type, shape = _pair(c)
    need(type == BOOL, "only for truth values")
    return [sized(BOOL, shape)]


@on("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", inputs=(2, 2))
def _compare(c: OnnxCall) -> list[ValueType]:
    return [sized(BOOL, _pair(c)[1])]


@on("Where", inputs=(3, 3))
def _where(c: OnnxCall) -> list[ValueType]:
    need(c[0].type == BOOL and c[1].type == c[2].type, "inputs of other types")
    return [sized(c[1].type, broadcast(c[0].shape, c[1].shape, c[2].shape))]


@on("Clip", inputs=(1, 3))
def _clip(c: OnnxCall) -> list[ValueType]:
    limits = [c[i] for i in (1, 2) if c.has(i)]
    need(c[0].type != BOOL and all(v.shape == () and v.type == c[0].type for v in limits), "limits that do not fit")
    result = sized(c[0].type, c[0].shape)
    if c[0].type in WHOLES and len(limits) == 2 and all(v.numbers for v in limits):
        return [ValueType(result.type, result.shape, within=(c.wholes(1)[0], c.wholes(2)[0]))]
    return [result]


@on("Cast", inputs=(1, 1), attributes="to")
def _cast(c: OnnxCall) -> list[ValueType]:
    type = c.number("to")
    need(type in TYPES, f"cast to type {type}")
    keep = type == INT64 and c[0].type in WHOLES
    return [sized(type, c[0].shape, c[0].numbers if keep else None)]


# ---- shapes ------------------------------------------------------------------------------------------------------


@on("Shape", inputs=(1, 1), attributes="start end")
def _shape(c: OnnxCall) -> list[ValueType]:
    rank = len(c[0].shape)
    dims = c[0].shape[slice(c.number("start"), c.number("end", rank))]
    return [sized(INT64, (len(dims),), dims)]


@on("Reshape", inputs=(2, 2))
def _reshape(c: OnnxCall) -> list[ValueType]:
    x, asked = c[0], c.wholes(1)
    need(len(c[1].shape) == 1, "the shape is no list")
    need(all(d >= -1 for d in asked) and asked.count(-1) <= 1, f"the shape {asked}")
    need(all(d or i < len(x.shape) for i, d in enumerate(asked)), f"the shape {asked}")
    dims = [x.shape[i] if d == 0 else d for i, d in enumerate(asked)]
    if -1 in dims:
        rest = prod(d for d in dims if d != -1)
        need(rest and x.count % rest == 0, f"{x.shape} cannot become {asked}")
        dims[dims.index(-1)] = x.count // rest
    need(prod(dims) == x.count, f"{x.shape} cannot become {asked}")
    return [sized(x.type, dims, x.numbers)]


@on("Squeeze", inputs=(1, 2))
def _squeeze(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    axes = places(c.wholes(1), len(x.shape)) if c.has(1) else ones
    need(set(axes) <= set(ones), "an axis that is not of size one")
    return [sized(x.type, [d for i, d in enumerate(x.shape) if i not in axes], x.numbers)]


@on("Unsqueeze", inputs=(2, 2))
def _unsqueeze(c: OnnxCall) -> list[ValueType]:
    x, rank = c[0], len(c[0].shape) + len(c.wholes(1))
    axes, dims = places(c.wholes(1), rank), iter(x.shape)
    return [sized(x.type, [1 if i in axes else next(dims) for i in range(rank)], x.numbers)]


@on("Expand", inputs=(2, 2))
def _expand(c: OnnxCall) -> list[ValueType]:
    need(len(c[1].shape) == 1, "the shape is no list")
    return [sized(c[0].type, broadcast(c[0].shape, c.wholes(1)))]


@on("Tile", inputs=(2, 2))
def _tile(c: OnnxCall) -> list[ValueType]:
    times = c.wholes(1)
    need(len(times) == len(c[0].shape) and all(t >= 0 for t in times), f"{times} times")
    return [sized(c[0].type, [d * t for d, t in zip(c[0].shape, times, strict=True)])]


@on("Transpose", inputs=(1, 1), attributes="perm")
def _transpose(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    order = c.numbers("perm", tuple(range(len(x.shape)))[::-1])
    need(sorted(order) == list(range(len(x.shape))), f"the order {order}")
    return [sized(x.type, [x.shape[i] for i in order])]


@on("Concat", inputs=(1, MANY), attributes="axis")
def _concat(c: OnnxCall) -> list[ValueType]:
    parts = [c[i] for i in range(len(c.given))]
    first = parts[0]
    axis = c.axis(len(first.shape))
    for part in parts:
        same = len(part.shape) == len(first.shape) and part.type == first.type
        need(same and all(a == b or i == axis for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True))),
             "parts that do not fit")  # fmt: skip
    total = sum(part.shape[axis] for part in parts)
    known = len(first.shape) == 1 and all(part.numbers is not None for part in parts)
    content = [n for part in parts for n in part.numbers or ()] if known else None
    return [sized(first.type, [*first.shape[:axis], total, *first.shape[axis + 1 :]], content)]


@on("Split", inputs=(2, 2), attributes="axis", results=MANY)
def _split(c: OnnxCall) -> list[ValueType]:
    x, sizes = c[0], c.wholes(1)
    axis = c.axis(len(x.shape))
    need(len(sizes) == c.results and min(sizes) >= 0 and sum(sizes) == x.shape[axis], f"parts of {sizes}")
    return [sized(x.type, [*x.shape[:axis], part, *x.shape[axis + 1 :]]) for part in sizes]


@on("Slice", inputs=(5, 5))
def _slice(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    starts, ends, axes, steps = (c.wholes(i) for i in range(1, 5))
    need(len(starts) == len(ends) == len(axes) == len(steps) and all(steps), "slices that do not fit")
    dims, content = list(x.shape), x.numbers if len(x.shape) == 1 else None
    for start, end, axis, step in zip(starts, ends, places(axes, len(dims)), steps, strict=True):
        need(step > 0 or start >= -dims[axis], f"backwards from {start}")
        cut = range(dims[axis])[start:end:step]  # ONNX clamps as Python does, but for where it begins backwards
        dims[axis] = len(cut)
        content = None if content is None else tuple(content[i] for i in cut)
    return [sized(x.type, dims, content)]


@on("Pad", inputs=(2, 3))
def _pad(c: OnnxCall) -> list[ValueType]:
    """With a constant: other modes read what may not be there."""
    x, sides, rank = c[0], c.wholes(1), len(c[0].shape)
    need(len(sides) == 2 * rank and (not c.has(2) or (c[2].type == x.type and c[2].count == 1)), f"sides {sides}")
    dims = [d + a + b for d, a, b in zip(x.shape, sides[:rank], sides[rank:], strict=True)]
    need(all(d + min(a, 0) + min(b, 0) >= 0 for d, a, b in zip(x.shape, sides[:rank], sides[rank:], strict=True)),
         f"sides {sides}")  # fmt: skip
    return [sized(x.type, dims)]


@on("ConstantOfShape", inputs=(1, 1), attributes="value")
def _filled(c: OnnxCall) -> list[ValueType]:
    value = c.attributes.get("value")
    need(len(c[0].shape) == 1, "the shape is no list")
    if value is None:
        return [sized(FLOAT, c.wholes(0))]
    need(isinstance(value, OnnxTensor) and value.raw is not None and prod(value.dims) == 1, "filled with no number")
    return [sized(value.type if isinstance(value, OnnxTensor) else FLOAT, c.wholes(0))]


# ---- looking up --------------------------------------------------------------------------------------------------


@on("Gather", inputs=(2, 2), attributes="axis")
def _gather(c: OnnxCall) -> list[ValueType]:
    x, where = c[0], c[1]
    axis = c.axis(len(x.shape))
    need(where.type in WHOLES, "places that are no whole numbers")
    return [sized(x.type, [*x.shape[:axis], *where.shape, *x.shape[axis + 1 :]])]


def _beside(c: OnnxCall) -> None:
    x, where = c[0], c[1]
    axis = c.axis(len(x.shape))
    need(where.type in WHOLES and len(where.shape) == len(x.shape), "places that do not fit")
    need(all(a <= b or i == axis for i, (a, b) in enumerate(zip(where.shape, x.shape, strict=True))),
         "places that do not fit")  # fmt: skip


@on("GatherElements", inputs=(2, 2), attributes="axis")
def _gather_elements(c: OnnxCall) -> list[ValueType]:
    _beside(c)
    return [sized(c[0].type, c[1].shape)]


@on("GatherND", inputs=(2, 2))
def _gather_nd(c: OnnxCall) -> list[ValueType]:
    x, where = c[0], c[1]
    need(where.type == INT64 and where.shape and 1 <= where.shape[-1] <= len(x.shape), "places that do not fit")
    return [sized(x.type, where.shape[:-1] + x.shape[where.shape[-1] :])]


@on("TopK", inputs=(2, 2), attributes="axis largest sorted", results=2)
def _top(c: OnnxCall) -> list[ValueType]:
    """Sorting a row takes as many comparisons a number as the row's length has digits."""
    x, axis = c[0], c.axis(len(c[0].shape), -1)
    need(x.type in REALS and c[1].shape == (1,) and 1 <= c.wholes(1)[0] <= x.shape[axis], "more than there are")
    need(c.flag("sorted", 1) and c.flag("largest", 1) in (True, False), "in no order")
    c.work, c.scratch = x.count * SORT * x.shape[axis].bit_length(), x.shape[axis] * 16
    shape = [*x.shape[:axis], c.wholes(1)[0], *x.shape[axis + 1 :]]
    return [sized(x.type, shape), sized(INT64, shape)][: c.results]


def _reduction(c: OnnxCall) -> None:
    need(c.attributes.get("reduction", "none") in ("none", "add"), "another reduction than add")


@on("ScatterElements", inputs=(3, 3), attributes="axis reduction")
def _scatter_elements(c: OnnxCall) -> list[ValueType]:
    _beside(c)
    _reduction(c)
    need(c[2].type == c[0].type and c[2].shape == c[1].shape, "as many numbers as places")
    return [sized(c[0].type, c[0].shape)]


@on("ScatterND", inputs=(3, 3), attributes="reduction")
def _scatter_nd(c: OnnxCall) -> list[ValueType]:
    _reduction(c)
    x, where, new = c[0], c[1], c[2]
    need(where.type == INT64 and where.shape and 1 <= where.shape[-1] <= len(x.shape), "places that do not fit")
    need(new.type == x.type and new.shape == where.shape[:-1] + x.shape[where.shape[-1] :], "as many numbers as places")
    return [sized(x.type, x.shape)]


# ---- sums --------------------------------------------------------------------------------------------------------


@on("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    inputs=(2, 2), attributes="keepdims")  # fmt: skip
def _reduce(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    need(x.type in REALS or (c.op == "ReduceSum" and x.type in WHOLES), "only for real numbers")
    axes = places(c.wholes(1), len(x.shape))
    need(axes or not x.shape, "a reduction over no axis")
    return [sized(x.type, _without(x.shape, axes, keep=c.flag("keepdims", 1)))]


@on("ArgMax", inputs=(1, 1), attributes="axis keepdims")
def _arg_max(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    axis = c.axis(len(x.shape))
    need(x.type in REALS and x.shape[axis], "no largest number")
    return [sized(INT64, _without(x.shape, [axis], keep=c.flag("keepdims", 1)))]


def _without(shape: tuple[int, ...], axes: list[int], *, keep: bool) -> list[int]:
    return [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]


@on("CumSum", inputs=(2, 2), attributes="exclusive")
def _cumulated(c: OnnxCall) -> list[ValueType]:
    c.flag("exclusive")
    need(c[1].count == 1, "along one axis")
    place(c.wholes(1)[0], len(c[0].shape))
    need(c[0].type != BOOL, "only for numbers")
    return [sized(c[0].type, c[0].shape)]


@on("MatMul", inputs=(2, 2))
def _matmul(c: OnnxCall) -> list[ValueType]:
    a, b = c[0], c[1]
    need(a.type == b.type and a.type in REALS, "only for real numbers")
    need(len(a.shape) >= 2 and len(b.shape) >= 2 and a.shape[-1] == b.shape[-2], f"{a.shape} times {b.shape}")
    result = sized(a.type, [*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]])
    c.work = result.count * a.shape[-1]
    return [result]


@on("Gemm", inputs=(2, 3), attributes="transA transB alpha beta")
def _gemm(c: OnnxCall) -> list[ValueType]:
    a, b = c[0], c[1]
    need(a.type == b.type and a.type in REALS and len(a.shape) == len(b.shape) == 2, "only for matrices")
    (m, inner), (rows, n) = (v.shape[:: -1 if c.flag(turn) else 1] for v, turn in ((a, "transA"), (b, "transB")))
    need(inner == rows, f"{a.shape} times {b.shape}")
    if c.has(2):
        need(c[2].type == a.type and broadcast(c[2].shape, (m, n)) == (m, n), "a summand that does not fit")
    c.work = m * n * inner
    return [sized(a.type, (m, n))]


@on("BatchNormalization", inputs=(5, 5), attributes="epsilon")
def _batch_norm(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    need(x.type in REALS and len(x.shape) >= 2, "only for channels of real numbers")
    need(all(c[i].type == x.type and c[i].shape == x.shape[1:2] for i in range(1, 5)), "not one number a channel")
    return [sized(x.type, x.shape)]


@on("LayerNormalization", inputs=(2, 3), attributes="axis epsilon", results=3)
def _layer_norm(c: OnnxCall) -> list[ValueType]:
    x = c[0]
    axis = c.axis(len(x.shape), -1)
    need(x.type in REALS, "only for real numbers")
    need(all(c[i].type == x.type and c[i].shape == x.shape[axis:] for i in range(1, len(c.given))), "other scales")
    row = sized(FLOAT, _without(x.shape, list(range(axis, len(x.shape))), keep=True))
    return [sized(x.type, x.shape), row, row][: c.results]
