"""A small ONNX graph under construction: constants are pooled, equal nodes are merged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from onnx import GraphProto, TensorProto, helper, numpy_helper

from edgefl.base.vector import Array
from edgefl.learn.models.onnx.sizes import Dim, UncoveredError, evaluated, is_symbolic, multiple, same, static


class Types(dict[torch.dtype, Any]):
    """What a type of torch is elsewhere; graphs have no others."""

    def __missing__(self, dtype: torch.dtype) -> Any:
        raise UncoveredError(f"numbers of type {dtype}")


ONNX_TYPES = Types(
    {
        torch.float32: TensorProto.FLOAT,
        torch.float64: TensorProto.DOUBLE,
        torch.int64: TensorProto.INT64,
        torch.int32: TensorProto.INT32,
        torch.bool: TensorProto.BOOL,
    }
)
NUMPY_TYPES = Types(
    {
        torch.float32: np.float32,
        torch.float64: np.float64,
        torch.int64: np.int64,
        torch.int32: np.int32,
        torch.bool: np.bool_,
    }
)
END = 2**62  # "to the end" for Slice


@dataclass(frozen=True, slots=True)
class Value:
    """A name in the graph together with the fake tensor that tells its shape and type."""

    name: str
    fake: torch.Tensor

    @property
    def shape(self) -> list[Dim]:
        return list(self.fake.shape)

    @property
    def ndim(self) -> int:
        return self.fake.ndim

    @property
    def dtype(self) -> torch.dtype:
        return self.fake.dtype


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number that depends on the batch size, such as one over the count of a mean; a double scalar in the graph."""

    name: str


Operand: TypeAlias = "Value | str"
Number: TypeAlias = "Value | str | Fraction | int | float | bool | torch.SymInt"


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX operator call."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    captured: tuple[str, ...] = ()  # names of this graph that the body of a loop uses

    @property
    def uses(self) -> tuple[str, ...]:
        return self.inputs + self.captured


@dataclass(frozen=True, slots=True)
class DropoutMask:
    """A dropout mask the device draws: its name, its fake tensor and the share of ones."""

    value: Value
    keep: float


@dataclass
class Graph:
    """The graph so far. Calling it adds a node and gives back the name of its output, or names if there are several."""

    prefix: str = ""  # of all names, so that the body of a loop shares none with the graph around it
    batch: str = ""  # the name of the batch size, int64[1]
    out: Any = None  # the fake result (or results) of the operator being translated
    nodes: list[Node] = field(default_factory=list)
    constants: dict[tuple[bytes, tuple[int, ...], str], tuple[str, Array]] = field(default_factory=dict)
    known: dict[str, torch.Tensor] = field(default_factory=dict)  # shapes of intermediate values
    noise: list[DropoutMask] = field(default_factory=list)
    pooled: dict[str, Any] = field(default_factory=dict)  # gradients of tiled maxima, and what they were made of
    dense: dict[str, int] = field(default_factory=dict)  # products of a mini-batch with weights: how many weights
    ahead: set[str] = field(default_factory=set)  # values of the pullback best computed in the forward pass
    seen: dict[Any, tuple[str, ...]] = field(default_factory=dict)
    makers: dict[str, Node] = field(default_factory=dict)  # by output

    def __call__(self, op: str, *inputs: Operand, **attributes: Any) -> str:
        return self.several(op, *inputs, n=1, **attributes)[0]

    def several(
        self, op: str, *inputs: Operand, n: int, captured: tuple[str, ...] = (), **attributes: Any
    ) -> list[str]:
        """The names of the `n` outputs of a new node, or of an equal one that is there already."""
        names = tuple(i.name if isinstance(i, Value) else i for i in inputs)
        key = (op, names, n, repr(sorted(attributes.items())))
        if key not in self.seen:
            stem = f"{self.prefix}{op}_{len(self.nodes)}"
            outputs = (stem, *(f"{stem}_{i}" for i in range(1, n)))
            self.nodes.append(Node(op, names, outputs, attributes, captured))
            self.makers.update(dict.fromkeys(outputs, self.nodes[-1]))
            self.seen[key] = outputs
        return list(self.seen[key])

    def early(self, x: str) -> str:
        """`x`, to be computed in the forward pass: so this is handed over, and not the more it is made of."""
        self.ahead.add(x)
        return x

    def constant(self, value: Any, dtype: torch.dtype = torch.int64) -> str:
        """The name of this constant."""
        array = np.asarray(value, NUMPY_TYPES[dtype])
        key = (array.tobytes(), array.shape, array.dtype.str)
        if key not in self.constants:
            self.constants[key] = (f"{self.prefix}c{len(self.constants)}", array)
        return self.constants[key][0]

    def size(self, dim: Dim) -> str:
        """A size as int64[1], computed from the batch size where it depends on it."""
        if not isinstance(dim, torch.SymInt) or not is_symbolic(dim):
            return self.constant([static(dim)])
        return self._expression(dim.node.expr)

    def _expression(self, e: Any) -> str:  # a sympy expression in the one symbol there is
        if e.is_Symbol:
            return self.batch
        if e.is_Integer:
            return self.constant([int(e)])
        operator = {"Add": "Add", "Mul": "Mul", "FloorDiv": "Div"}.get(type(e).__name__)
        if operator is None:
            raise UncoveredError(f"a size that depends on the batch as {e}")
        total = self._expression(e.args[0])
        for part in e.args[1:]:
            total = self(operator, total, self._expression(part))
        return total

    def numel(self, dims: Iterable[Dim]) -> str:
        """How many numbers a tensor of this shape has, as int64[1]."""
        dims = list(dims)
        total = self.constant([prod(static(d) for d in dims if not is_symbolic(d))])
        for d in dims:
            total = self("Mul", total, self.size(d)) if is_symbolic(d) else total
        return total

    def sizes(self, dims: Iterable[Dim]) -> str:
        """A shape as int64[n]."""
        dims = list(dims)
        if not any(is_symbolic(d) for d in dims):
            return self.constant([static(d) for d in dims])
        parts = [self.size(d) for d in dims]
        return self("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def reshape(self, x: Operand, dims: Iterable[Dim]) -> str:
        """`x` in this shape; one symbolic dimension is left for the runtime to infer."""
        dims = list(dims)
        if isinstance(x, Value) and same(x.shape, dims):
            return x.name
        x = x.name if isinstance(x, Value) else x
        while x in self.makers and self.makers[x].op == "Reshape":
            x = self.makers[x].inputs[0]
        if x in self.known and same(self.known[x].shape, dims):
            return x
        if sum(is_symbolic(d) for d in dims) <= 1 and not any(str(d) == "0" for d in dims):
            return self("Reshape", x, self.constant([-1 if is_symbolic(d) else static(d) for d in dims]))
        return self("Reshape", x, self.sizes(dims))

    def cast(self, x: Number, dtype: torch.dtype) -> str:
        """An operand of an elementwise operator: a tensor, a number, or a number that depends on the batch size."""
        if isinstance(x, Value):
            return x.name if x.dtype == dtype else self("Cast", x, to=ONNX_TYPES[dtype])
        if isinstance(x, str):
            return x
        if isinstance(x, Fraction):
            return self("Cast", x.name, to=ONNX_TYPES[dtype])
        if isinstance(x, torch.SymInt):
            return self("Cast", self("Squeeze", self.size(x)), to=ONNX_TYPES[dtype])
        return self.constant(x, dtype)

    def filled(self, dims: Iterable[Dim], value: float, dtype: torch.dtype) -> str:
        """A tensor full of one number."""
        fill = numpy_helper.from_array(np.full([1], value, NUMPY_TYPES[dtype]))
        return self("ConstantOfShape", self.sizes(dims), value=fill)

    def slice(
        self, x: Operand, axes: Sequence[int], start: Sequence[int], end: Sequence[int], step: Sequence[int]
    ) -> str:
        """The slices of `x` along these axes."""
        return self("Slice", x, *(self.constant(list(v)) for v in (start, end, axes, step)))

    def transpose(self, x: Operand, order: Sequence[int]) -> str:
        """`x` with its axes in this order; two turns in a row are made at once."""
        name = x.name if isinstance(x, Value) else x
        order, before = list(order), self.makers.get(name)
        if before and before.op == "Transpose":
            name, order = before.inputs[0], [before.attributes["perm"][axis] for axis in order]
        return name if order == sorted(order) else self("Transpose", name, perm=order)

    def turned(self, x: Operand) -> str | None:
        """The matrix whose transpose `x` is, if it is one."""
        name = x.name if isinstance(x, Value) else x
        source = self.makers.get(name)
        return source.inputs[0] if source and source.op == "Transpose" and source.attributes["perm"] == [1, 0] else None

    def swap(self, x: Operand, ndim: int) -> str:
        """`x` with its first two axes exchanged."""
        return self("Transpose", x, perm=[1, 0, *range(2, ndim)])


def proto(nodes: Iterable[Node], name: str, inputs: list[Value], outputs: list[Value], g: Graph) -> GraphProto:
    """The graph of these nodes with the constants of `g` it uses."""
    nodes = list(nodes)
    used = {i for node in nodes for i in node.inputs}
    return helper.make_graph(
        [helper.make_node(node.op, node.inputs, node.outputs, **node.attributes) for node in nodes],
        name,
        [describe(v) for v in inputs],
        [describe(v) for v in outputs],
        [numpy_helper.from_array(array, name) for name, array in g.constants.values() if name in used],
    )


def describe(value: Value, batch: int | None = None) -> Any:
    """Name, type and shape for ONNX, with symbolic sizes or those for a batch of this size."""
    dims = [size_of(d, batch) if is_symbolic(d) else static(d) for d in value.shape]
    return helper.make_tensor_value_info(value.name, ONNX_TYPES[value.dtype], dims)


def size_of(dim: Dim, batch: int | None) -> int | str:
    """A symbolic size as text, or as the number it is for a batch of this size."""
    return named(multiple(dim)) if batch is None else evaluated(dim, batch)


def named(times: int) -> str:
    """Return how a multiple of the batch size is written: `N`, `2N`, `3N`."""
    return "N" if times == 1 else f"{times}N"
