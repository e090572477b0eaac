"""Rules for the recurrent operators: each is one loop (Scan), with all that can be done at once kept outside it."""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's operators

import torch
from onnx import TensorProto, helper

from edgefl.learn.models.onnx.graph import Graph, Node, Value, proto
from edgefl.learn.models.onnx.recurrent import OPS
from edgefl.learn.models.onnx.rules import on
from edgefl.learn.models.onnx.sizes import static

FLOAT = torch.float32


class Loop:
    """The body of a Scan under construction. Names of the graph outside can be used inside."""

    def __init__(self, g: Graph) -> None:
        self.outside = g
        self.body = Graph(prefix=f"loop{len(g.nodes)}.")
        self.states: list[str] = []
        self.steps: list[str] = []

    def state(self, initial: str) -> str:
        """The name, inside, of what one step hands to the next."""
        self.states.append(initial)
        return f"{self.body.prefix}state{len(self.states)}"

    def step(self, sequence: str) -> str:
        """The name, inside, of this step's part of a sequence."""
        self.steps.append(sequence)
        return f"{self.body.prefix}step{len(self.steps)}"

    def run(self, states: list[str], results: list[str], captured: tuple[str, ...], reverse: bool) -> list[str]:
        """The final states and the sequences of results."""
        p, way = self.body.prefix, int(reverse)
        inside = [f"{p}state{i + 1}" for i in range(len(self.states))] + [
            f"{p}step{i + 1}" for i in range(len(self.steps))
        ]
        outputs, doors = list[str](), list[Node]()
        for value in [*results, *states]:  # a value leaves under its own name, and by another door under another
            again = value in outputs or value not in self.body.makers
            outputs.append(f"{p}out{len(outputs)}" if again else value)
            doors += [Node("Identity", (value,), (outputs[-1],), {})] if again else []
        outputs = outputs[len(results) :] + outputs[: len(results)]
        body = proto([*self.body.nodes, *doors], f"{p}body", [], [], self.body)
        body.input.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inside)
        body.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs)
        directions = {"scan_input_directions": [way] * len(self.steps), "scan_output_directions": [way] * len(results)}
        return self.outside.several(
            "Scan", *self.states, *self.steps, n=len(outputs), captured=captured, body=body,
            num_scan_inputs=len(self.steps), **directions,
        )  # fmt: skip


def _before(g: Graph, steps: str, first: Value, reverse: bool) -> str:
    start, end = g("Unsqueeze", first, g.constant([0])), 2**62
    if reverse:
        return g("Concat", g.slice(steps, [0], [1], [end], [1]), start, axis=0)
    return g("Concat", start, g.slice(steps, [0], [0], [-1], [1]), axis=0)


def _slope(g: Graph, gate: str) -> str:
    """The derivative of a sigmoid, from its result."""
    return g("Mul", gate, g("Sub", g.constant(1, FLOAT), gate))


def _tanh_slope(g: Graph, y: str) -> str:
    return g("Sub", g.constant(1, FLOAT), g("Mul", y, y))


@on(OPS.lstm.default)
def _lstm(g: Graph, x: Value, w: Value, h: Value, c: Value, reverse: bool) -> list[str]:
    n = static(w.shape[1])
    turned = g("Transpose", w, perm=[1, 0])
    loop = Loop(g)
    b, h0, c0, entering = loop.body, loop.state(h.name), loop.state(c.name), loop.step(x.name)
    gates = b("Add", b("MatMul", h0, turned), entering)
    take, keep, candidate, out = b.several("Split", gates, b.constant([n] * 4), axis=1, n=4)
    take, keep, candidate, out = b("Sigmoid", take), b("Sigmoid", keep), b("Tanh", candidate), b("Sigmoid", out)
    cell = b("Add", b("Mul", keep, c0), b("Mul", take, candidate))
    squashed = b("Tanh", cell)
    y, kept = b("Mul", out, squashed), [c0, squashed, take, keep, candidate, out]
    last, last_cell, *steps = loop.run([y, cell], kept, (turned,), reverse)
    return [last, last_cell, g("Mul", steps[5], steps[1]), *steps]


@on(OPS.lstm_backward.default)
def _lstm_backward(
    g: Graph, dy: Value | None, dh: Value | None, dc: Value | None, saved: list[Value], w: Value, c: Value,
    reverse: bool,
) -> list[str]:  # fmt: skip
    """Per step: dh = dy + dgates @ w; dc = dc * keep + dh * a; dgates = [dc, dc, dc, dh] * b."""
    y, before, squashed, take, keep, candidate, out = (v.name for v in saved)
    one, taken = g.constant(1, FLOAT), g("Mul", take, candidate)
    a = g("Sub", out, g("Mul", y, squashed))
    slopes = g("Concat", g("Mul", taken, g("Sub", one, take)), g("Mul", before, _slope(g, keep)),
               g("Sub", take, g("Mul", taken, candidate)), g("Mul", y, g("Sub", one, out)), axis=2)  # fmt: skip
    loop = Loop(g)
    b, dh_last, dc_last = loop.body, loop.state(_given(g, dh, c)), loop.state(_given(g, dc, c))
    dh_now = b("Add", dh_last, loop.step(dy.name)) if dy else dh_last
    dcell = b("Add", dc_last, b("Mul", dh_now, loop.step(a)))
    dgates = b("Mul", b("Concat", dcell, dcell, dcell, dh_now, axis=1), loop.step(slopes))
    earlier = [b("MatMul", dgates, w.name), b("Mul", dcell, loop.step(keep))]
    dh_first, dc_first, dx = loop.run(earlier, [dgates], (w.name,), not reverse)
    return [dx, dh_first, dc_first]


def _given(g: Graph, gradient: Value | None, state: Value) -> str:
    """The gradient of a last state; zeros where nothing came of it."""
    return gradient.name if gradient else g("Mul", state, g.constant(0, FLOAT))


@on(OPS.gru.default)
def _gru(g: Graph, x: Value, w: Value, bias: Value, h: Value, reverse: bool) -> list[str]:
    n = static(w.shape[1])
    turned = g("Transpose", w, perm=[1, 0])
    loop = Loop(g)
    b, h0 = loop.body, loop.state(h.name)
    product = b("Add", b("MatMul", h0, turned), bias.name)
    in_both, in_new = b.several("Split", loop.step(x.name), b.constant([2 * n, n]), axis=1, n=2)
    own_both, own_new = b.several("Split", product, b.constant([2 * n, n]), axis=1, n=2)
    both = b("Sigmoid", b("Add", in_both, own_both))
    reset, update = b.several("Split", both, b.constant([n, n]), axis=1, n=2)
    candidate = b("Tanh", b("Add", in_new, b("Mul", reset, own_new)))
    y = b("Add", candidate, b("Mul", update, b("Sub", h0, candidate)))
    return loop.run([y], [y, both, candidate, own_new], (turned, bias.name), reverse)


@on(OPS.gru_backward.default)
def _gru_backward(
    g: Graph, dy: Value | None, dh: Value | None, saved: list[Value], w: Value, h: Value, reverse: bool
) -> list[str]:
    """Per step: dproduct = [dh, dh, dh] * k; the dh before it = dh * update + dproduct @ w."""
    y, both, candidate, own = (v.name for v in saved)
    n = static(w.shape[1])
    reset, update = g.several("Split", both, g.constant([n, n]), axis=2, n=2)
    to_new = g("Mul", g("Sub", g.constant(1, FLOAT), update), _tanh_slope(g, candidate))
    to_reset = g("Mul", to_new, g("Mul", own, _slope(g, reset)))
    to_update = g("Mul", g("Sub", _before(g, y, h, reverse), candidate), _slope(g, update))
    slopes = g("Concat", to_reset, to_update, g("Mul", to_new, reset), axis=2)
    loop = Loop(g)
    b, dh_last = loop.body, loop.state(_given(g, dh, h))
    dh_now = b("Add", dh_last, loop.step(dy.name)) if dy else dh_last
    dproduct = b("Mul", b("Concat", dh_now, dh_now, dh_now, axis=1), loop.step(slopes))
    earlier = b("Add", b("Mul", dh_now, loop.step(update)), b("MatMul", dproduct, w.name))
    first, dp, dhs = loop.run([earlier], [dproduct, dh_now], (w.name,), not reverse)
    dboth, _ = g.several("Split", dp, g.constant([2 * n, n]), axis=2, n=2)
    return [g("Concat", dboth, g("Mul", dhs, to_new), axis=2), dp, first]
