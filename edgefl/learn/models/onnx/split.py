"""Cutting a joint graph: what the outputs need runs first, the rest waits for the gradient of the outputs.

The values at the cut are handed over, so nothing is computed twice, except views, which cost nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, ValueInfoProto, helper, shape_inference

from edgefl.learn.models.onnx.graph import Graph, Node, Value, describe, named, proto

OPSET, IR = 18, 8
TRIALS = (11, 13)
VIEWS = {"Reshape", "Unsqueeze", "Squeeze", "Identity", "Shape", "ConstantOfShape", "Expand"}


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Some nodes of a graph, and the names they take from elsewhere."""

    nodes: list[Node]
    inputs: set[str]


def needed(nodes: Sequence[Node], outputs: Iterable[str], given: set[str]) -> GraphPart:
    """The nodes that these outputs need, where the `given` names come from elsewhere."""
    names = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(o in names and o not in given for o in node.outputs):
            kept.append(node)
            names.update(node.uses)
    produced = {o for node in kept for o in node.outputs}
    return GraphPart(kept[::-1], names - produced)


def cut(g: Graph, first: Sequence[str], second: Sequence[str]) -> tuple[GraphPart, GraphPart, list[str]]:
    """The part that gives `first`, the part that gives `second`, and the names the one hands over to the other."""
    whole = needed(g.nodes, second, set())
    early = {o for node in whole.nodes for o in node.outputs if o in g.ahead}
    early = {o for o in early if "dz" not in needed(g.nodes, [o], set()).inputs}
    forward = needed(g.nodes, {*first, *early}, set())
    produced = {o for node in forward.nodes for o in node.outputs if node.op not in VIEWS}
    backward = needed(g.nodes, second, produced)
    return forward, backward, sorted(backward.inputs & produced)


def types(g: Graph, inputs: Sequence[Value]) -> dict[str, ValueInfoProto]:
    """Type and shape of every value of the graph, as far as ONNX can tell.

    With a symbolic batch ONNX gives up at the first reshape. So it is asked for two batch sizes, and a size that
    differs is a multiple of the batch.
    """
    small, large = (_inferred(g, inputs, n) for n in TRIALS)
    infos = {}
    for name, a in small.items():
        pairs = zip(_dims(a), _dims(large[name]), strict=True)
        dims = [x if x == y else named(x // TRIALS[0]) for x, y in pairs]
        infos[name] = helper.make_tensor_value_info(name, a.type.tensor_type.elem_type, dims)
    return infos


def _inferred(g: Graph, inputs: Sequence[Value], batch: int) -> dict[str, ValueInfoProto]:
    graph = proto(g.nodes, "all", [], [], g)
    given = [*inputs, *(n.value for n in g.noise)]
    graph.input.extend(describe(v, batch) for v in given)
    inside = g.known.keys() - {v.name for v in given}
    graph.value_info.extend(describe(Value(name, g.known[name]), batch) for name in inside)
    inferred = shape_inference.infer_shapes(model(graph), data_prop=True).graph
    return {v.name: v for v in (*inferred.input, *inferred.value_info)}


def _dims(value: ValueInfoProto) -> list[int]:
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def model(graph: GraphProto) -> ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def assemble(
    g: Graph,
    part: GraphPart,
    known: dict[str, ValueInfoProto],
    outputs: Sequence[tuple[str, Value]],
    handed: Sequence[str] = (),
) -> bytes:
    """The part as an ONNX file: its results under the names in `outputs`, then the values it hands over."""
    ends = [Node("Identity", (value.name,), (name,), {}) for name, value in outputs]
    graph = proto([*part.nodes, *ends], "edgefl", [], [Value(name, value.fake) for name, value in outputs], g)
    constants = {name for name, _ in g.constants.values()}
    graph.input.extend(known[name] for name in sorted(part.inputs - constants) if name)
    graph.output.extend(known[name] for name in handed)
    produced = [o for node in part.nodes for o in node.outputs if o in known and o not in handed]
    graph.value_info.extend(known[name] for name in produced)
    finished = model(graph)
    onnx.checker.check_model(finished, full_check=True)
    return bytes(finished.SerializeToString(deterministic=True))
