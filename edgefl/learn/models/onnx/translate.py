"""A traced graph of torch operators, written in ONNX one operator after the other."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgefl.learn.models.onnx import (  # noqa: F401  importing a family registers its rules
    operators_conv,
    operators_elementwise,
    operators_index,
    operators_linear,
    operators_norm,
    operators_pool,
    operators_recurrent,
    operators_relu,
    operators_shape,
    operators_sort,
)
from edgefl.learn.models.onnx.graph import Fraction, Graph, Value
from edgefl.learn.models.onnx.rules import RULES
from edgefl.learn.models.onnx.sizes import UncoveredError
from edgefl.learn.models.onnx.tracing import still_dynamic
from edgefl.learn.models.source_lines import source_line

ARITHMETIC = {"truediv": "Div", "mul": "Mul", "sub": "Sub", "add": "Add"}


def translate(
    traced: GraphModule, names: Sequence[str], batch_of: str
) -> tuple[Graph, list[Value], list[Value | None]]:
    """The ONNX graph, its inputs under these names, and its results; the batch size is read from input `batch_of`."""
    g = Graph()
    g.batch = g("Shape", batch_of, start=0, end=1)
    values: dict[Node, Any] = {}
    inputs: list[Value] = []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            values[node] = Value(names[len(inputs)], node.meta["val"])
            inputs.append(values[node])
        elif node.op == "get_attr":
            tensor = getattr(traced, str(node.target)).detach()
            values[node] = Value(g.constant(tensor.numpy(), tensor.dtype), tensor)
        elif node.op == "call_function":
            values[node] = _result(g, node, _lookup(node.args, values), _lookup(dict(node.kwargs), values))
    still_dynamic(traced)
    results = _lookup(traced.graph.output_node().args[0], values)
    return g, inputs, list(results)


def _lookup(argument: Any, values: dict[Node, Any]) -> Any:
    if isinstance(argument, Node):
        return values[argument]
    if isinstance(argument, (list, tuple)):
        return [_lookup(a, values) for a in argument]
    if isinstance(argument, dict):
        return {k: _lookup(v, values) for k, v in argument.items()}
    return argument


def _result(g: Graph, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
    fake = node.meta.get("val")
    if node.target is operator.getitem:
        return args[0][args[1]]
    if isinstance(fake, (torch.SymInt, int)):
        return fake
    try:
        if isinstance(fake, torch.SymFloat):
            return _fraction(g, node, args)
        if node.target not in RULES:
            raise UncoveredError("it has no translation to standard ONNX")
        g.out = fake
        names = RULES[node.target](g, *args, **kwargs)
    except UncoveredError as reason:
        text = f"operator {node.target} at {source_line(node)} cannot be exported: {reason}; use another layer there"
        raise UncoveredError(text) from None
    if isinstance(names, str):
        return _known(g, names, fake)
    return [None if n is None else _known(g, n, f) for n, f in zip(names, fake or (), strict=True)]


def _known(g: Graph, name: str, fake: Any) -> Value:
    g.known.setdefault(name, fake)
    return Value(name, fake)


def _fraction(g: Graph, node: Node, args: list[Any]) -> Fraction:
    op = ARITHMETIC.get(getattr(node.target, "__name__", ""))
    if op is None:
        raise UncoveredError("a number computed from the batch size")

    def double(a: Any) -> str:
        return a.name if isinstance(a, Fraction) else g.cast(a, torch.float64)

    return Fraction(g(op, double(args[0]), double(args[1])))
