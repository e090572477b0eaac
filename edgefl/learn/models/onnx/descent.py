"""Whole steps of descent as one graph: forward, loss, pullback and update, for several mini-batches in one call.

It is a loop (Scan) over mini-batches of one size. What one step hands to the next are the weights, and the velocity
where there is momentum: they go in, they come out, and in between nothing is copied.

The pullback is linear, so the rate is part of the gradient that it begins with. `gain` is minus the rate over the
number of samples; the result for each tensor is its move.

    outside    from.NAME, xs, ys, gain -> to.NAME, losses    velocity_from.NAME -> velocity_to.NAME; anchor.NAME; terms
    inside     w.NAME, x, y -> next.NAME, loss               the names that the traced graph uses
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from edgefl.learn.models.onnx.graph import ONNX_TYPES, Graph, Node, Value, describe, proto
from edgefl.learn.models.onnx.sizes import static
from edgefl.learn.models.onnx.split import model, needed
from edgefl.learn.models.rule import StepPlan

FLOAT = TensorProto.FLOAT
Loss: TypeAlias = Callable[[Graph, Value], tuple[str, str]]  # from outputs to the batch's sum, and its gradient


def cross_entropy(g: Graph, z: Value) -> tuple[str, str]:
    """Of logits against class numbers."""
    classes = g.constant(np.arange(static(z.shape[1])))
    true = g("Cast", g("Equal", g("Unsqueeze", "y", g.constant([1])), classes), to=FLOAT)
    logp = g("LogSoftmax", z, axis=1)
    return g("Neg", _sum(g, g("Mul", logp, true))), g("Sub", g("Exp", logp), true)


def double_softmax(g: Graph, z: Value) -> tuple[str, str]:
    """Cross-entropy of a softmax taken for logits, as Upcycled-FL's published program has it."""
    p = g("Softmax", z, axis=1)
    loss, dp = cross_entropy(g, Value(p, z.fake))
    across = g("ReduceSum", g("Mul", p, dp), g.constant([1]), keepdims=1)
    return loss, g("Mul", p, g("Sub", dp, across))


def squared_error(g: Graph, z: Value) -> tuple[str, str]:
    """Half the squared distance to rows of real numbers."""
    gap = g("Sub", z, "y")
    return _sum(g, g("Mul", g("Mul", gap, gap), g.constant(0.5, torch.float32))), gap


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "double_softmax": double_softmax,
    "squared_error": squared_error,
}


class LoopState(NamedTuple):
    """What one step hands to the next: its names outside and inside the loop, and a value of its shape."""

    given: str
    inside: str
    next: str
    result: str
    like: Value


class Traced(NamedTuple):
    """A pass of a network and its pullback, as they were traced."""

    graph: Graph
    inputs: dict[str, Value]
    outputs: Value
    statistics: dict[str, Value | None]  # after the pass
    gradients: dict[str, Value | None]


def descent(traced: Traced, plan: StepPlan) -> bytes:
    """The graph of such steps, as an ONNX file."""
    g, z, moved, grads = traced.graph, traced.outputs, traced.statistics, traced.gradients
    results = [v.name for v in (z, *moved.values(), *grads.values()) if v]
    ahead, behind = _around("dz", needed(g.nodes, results, set()).nodes)
    down, onward = (Graph(prefix=prefix, constants=g.constants) for prefix in ("loss.", "step."))
    total, gap = LOSSES[plan.loss](down, z)
    between = [
        *down.nodes,
        Node("Identity", (total,), ("loss",), {}),
        Node("Mul", (gap, "gain"), ("dz",), {}),
        *(Node("Identity", (v.name if v else f"w.{name}",), (f"next.{name}",), {}) for name, v in moved.items()),
    ]
    makers = {node.outputs[0]: node for node in (*ahead, *behind)}
    updates = [node for name, move in grads.items() for node in _updated(onward, name, move, plan, makers)]
    results = ["loss", *(f"next.{n}" for n in (*moved, *grads)), *(f"next_velocity.{n}" for n in grads)]
    nodes = needed([*ahead, *between, *behind, *onward.nodes, *updates], results, set()).nodes
    tensors = {name[2:]: v for name, v in traced.inputs.items() if name.startswith("w.")}
    states = [LoopState(f"from.{n}", f"w.{n}", f"next.{n}", f"to.{n}", v) for n, v in tensors.items()]
    if "momentum" in plan.terms:
        states += [
            LoopState(f"velocity_from.{n}", f"velocity.{n}", f"next_velocity.{n}", f"velocity_to.{n}", tensors[n])
            for n in grads
        ]
    return _file(traced, nodes, states, plan)


def _sum(g: Graph, x: str) -> str:
    return g("ReduceSum", x, g.constant([0, 1]), keepdims=0)


def _around(name: str, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes that do without this value, and those that do not."""
    after, ahead, behind = {name}, list[Node](), list[Node]()
    for node in nodes:
        if after.isdisjoint(node.uses):
            ahead.append(node)
        else:
            behind.append(node)
            after.update(node.outputs)
    return ahead, behind


def _updated(g: Graph, name: str, move: Value | None, plan: StepPlan, makers: Mapping[str, Node]) -> list[Node]:
    """The nodes that give a tensor's next value (and velocity): its own value and its move, with the plan's terms.

    A move that is a matrix product, or rows of a table, and nothing but that, is added while it is computed.
    """
    w, step = f"w.{name}", move.name if move else ""
    if not plan.terms and step in makers and (whole := _added(name, makers[step], makers)):
        return [whole]
    if "pull" in plan.terms:
        step = _plus(g, step, g("Mul", g("Sub", f"anchor.{name}", w), "pull"))
    if "decay" in plan.terms:
        step = _plus(g, step, g("Mul", w, "decay"))
    if "momentum" in plan.terms:
        kept = g("Mul", f"velocity.{name}", "momentum")
        velocity = _plus(g, step, kept)
        return [
            Node("Identity", (velocity,), (f"next_velocity.{name}",), {}),
            Node("Add", (w, velocity), (f"next.{name}",), {}),
        ]
    return [Node("Add", (w, step), (f"next.{name}",), {}) if step else Node("Identity", (w,), (f"next.{name}",), {})]


def _added(name: str, move: Node, makers: Mapping[str, Node]) -> Node | None:
    """The operator that made a move, adding to the tensor what it added to nothing; None if it is not such a one."""
    w, after = f"w.{name}", (f"next.{name}",)
    match move.op, move.inputs:
        case "Gemm", (a, b):
            return Node("Gemm", (a, b, w), after, move.attributes)
        case "ScatterND", (start, where, rows) if move.attributes.get("reduction") == "add":
            zeros = start in makers and _is_zero(makers[start])
            return Node("ScatterND", (w, where, rows), after, move.attributes) if zeros else None
    return None


def _is_zero(node: Node) -> bool:
    value = node.attributes.get("value")
    return node.op == "ConstantOfShape" and (value is None or not numpy_helper.to_array(value).any())


def _plus(g: Graph, a: str, b: str) -> str:
    return g("Add", a, b) if a else b


def _file(traced: Traced, nodes: Sequence[Node], states: Sequence[LoopState], plan: StepPlan) -> bytes:
    """The loop around these nodes, as a file."""
    g, inputs = traced.graph, traced.inputs
    x, whole = ONNX_TYPES[inputs["x"].dtype], plan.loss != "squared_error"
    y = TensorProto.INT64 if whole else FLOAT
    body = proto(nodes, "step", [], [], g)
    constants = list(body.initializer)
    del body.initializer[:]  # they stand outside: a loop has them once
    body.input.extend(_said(state.inside, FLOAT) for state in states)
    body.input.extend([_said("x", x), _said("y", y)])
    body.output.extend(_said(name, FLOAT) for name in (*(state.next for state in states), "loss"))
    loop = helper.make_node(
        "Scan", [*(state.given for state in states), "xs", "ys"], [*(state.result for state in states), "losses"],
        body=body, num_scan_inputs=2, scan_input_directions=[0, 0], scan_output_directions=[0],
    )  # fmt: skip
    used = {name for node in nodes for name in node.uses}
    anchors = [Value(f"anchor.{name[2:]}", v.fake) for name, v in inputs.items()]
    frozen = [v for name, v in inputs.items() if name.startswith("frozen.")]
    graph = helper.make_graph(
        [loop],
        "edgefl",
        [
            *(describe(Value(state.given, state.like.fake)) for state in states),
            _said("xs", x, ["K", *_dims(inputs["x"])]),
            _said("ys", y, ["K", *_dims(traced.outputs)[: 1 if whole else 2]]),
            *(_said(name, FLOAT, []) for name in ("gain", *plan.terms)),
            *(describe(v) for v in (*anchors, *frozen, *(noise.value for noise in g.noise)) if v.name in used),
        ],
        [*(describe(Value(state.result, state.like.fake)) for state in states), _said("losses", FLOAT, ["K"])],
        constants,
    )
    finished = model(graph)
    onnx.checker.check_model(finished, full_check=True)
    return bytes(finished.SerializeToString(deterministic=True))


def _said(name: str, type: int, dims: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type, dims)


def _dims(value: Value) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in describe(value).type.tensor_type.shape.dim]
