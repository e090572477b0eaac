"""How large every value of a graph is: found out and not believed, node by node, for one batch size."""

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

from edgefl.base.errors import RemoteError
from edgefl.learn.models import onnx_rules_conv  # noqa: F401  importing it registers its rules
from edgefl.learn.models.onnx_file import OnnxGraph, OnnxNode
from edgefl.learn.models.onnx_rules import MANY, OPERATORS, Operator
from edgefl.learn.models.onnx_values import OnnxCall, UnfitCall, ValueType, need, of_constant, sized

# Work is counted in multiplications of large matrices, of which a core of a PC makes some 40 billion a second; rules of
# slower operators count more for each of theirs. VGG16 with 8 samples of 224 x 224 is just below.
MOST_WORK = 2**35  # of one operator, which nothing can interrupt
MOST_LOADING = 2**32  # of all that may be computed while a graph is loaded, which nothing can interrupt either
SCAN = Operator(
    1,
    MANY,
    frozenset({"body", "num_scan_inputs", "scan_input_directions", "scan_output_directions"}),
    MANY,
    lambda _: [],  # it has a body, so it is walked through here
)


@dataclass(frozen=True, slots=True)
class Step:
    """One node: what it reads and writes, and what it needs while it runs."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: int  # bytes


@dataclass(slots=True)
class Inferred:
    """A graph whose values are all known."""

    values: MutableMapping[str, ValueType]
    steps: list[Step] = field(default_factory=list)
    constants: int = 0  # bytes that stay: constants, and what onnxruntime may compute from them when it loads the graph
    lasting: set[str] = field(default_factory=set)  # names of these
    loading: int = 0  # the work that they take
    steady: set[str] = field(default_factory=set)  # whose shape does not depend on the batch


def infer(graph: OnnxGraph, given: Mapping[str, ValueType], steady: set[str]) -> Inferred:
    """All values of a graph that is given these, or RemoteError; `steady` have the same shape for every batch."""
    known = Inferred(dict(given), steady=set(steady))
    _walk(graph, known)
    return known


def _walk(graph: OnnxGraph, known: Inferred) -> None:
    for name, tensor in graph.constants.items():
        try:
            _add(known, name, of_constant(tensor))
        except UnfitCall as why:
            raise RemoteError("model.shape", str(why)) from None
        known.constants += tensor.bytes
        known.lasting.add(name)
        known.steady.add(name)
    for node in graph.nodes:
        try:
            _visit(node, known)
        except UnfitCall as why:  # noqa: PERF203 - it names the node
            wrote = node.writes[0] if node.writes else ""
            raise RemoteError("model.shape", f"the operator {node.op} that gives '{wrote}': {why}") from None


def _visit(node: OnnxNode, known: Inferred) -> None:
    operator = SCAN if node.op == "Scan" else OPERATORS.get(node.op)
    if operator is None:
        raise RemoteError("model.operator", f"the graph uses {node.op}, which no graph of ours does")
    need(operator.least <= len(node.reads) <= operator.most, f"{len(node.reads)} inputs")
    need(1 <= len(node.writes) <= operator.results, f"{len(node.writes)} results")
    need(node.attributes.keys() <= operator.attributes, "an attribute that no graph of ours has")
    for name in node.reads:
        need(not name or name in known.values, f"'{name}' does not exist yet")
    given = [known.values[name] if name else None for name in node.reads]
    call = OnnxCall(node.op, given, dict(node.attributes), len(node.writes))
    reads = tuple(name for name in node.reads if name)
    if node.op == "Scan":
        results, captured = _scan(call, known)
        reads += captured
    else:
        results = operator.rule(call)
    work = max(call.work, *(v.count for v in (*results, *given) if v is not None))
    for name, value in zip(node.writes, results, strict=True):
        _add(known, name, value)
    _remember(node, reads, work, known)
    if work > MOST_WORK:
        raise RemoteError(
            "model.too_long",
            f"one {node.op} takes {work:.1e} steps, allowed are {MOST_WORK:.1e}; a smaller batch helps",
        )
    if known.loading > MOST_LOADING:
        raise RemoteError("model.too_long", f"its constants take more than {MOST_LOADING:.1e} steps to compute")
    known.steps.append(Step(reads, node.writes, call.scratch))


def _add(known: Inferred, name: str, value: ValueType) -> None:
    need(name and name not in known.values, f"'{name}' is there twice, or has no name")
    known.values[name] = value


def _remember(node: OnnxNode, reads: tuple[str, ...], work: int, known: Inferred) -> None:
    """What onnxruntime may compute when it loads the graph, and then keeps for as long as it has it."""
    if known.steady.issuperset(reads):
        known.steady.update(node.writes)
        if node.op == "Shape" or known.lasting.issuperset(reads):
            known.lasting.update(node.writes)
            known.constants += sum(known.values[name].bytes for name in node.writes)
            known.loading += work


def _scan(c: OnnxCall, known: Inferred) -> tuple[list[ValueType], tuple[str, ...]]:
    """A loop over the first axis of its last inputs. What one step hands to the next must keep its shape."""
    body, sequences = c.attributes.get("body"), c.number("num_scan_inputs")
    if not isinstance(body, OnnxGraph):
        raise UnfitCall("no body")
    states = [c[i] for i in range(len(c.given) - sequences)]
    walked = [c[i] for i in range(len(states), len(c.given))]
    results = len(body.outputs) - len(states)
    need(1 <= sequences <= len(c.given) and results >= 0 and len(body.outputs) == c.results, "states that do not fit")
    need(all(v.shape and v.shape[0] == walked[0].shape[0] >= 1 for v in walked), "sequences of different lengths")
    for name, count in (("scan_input_directions", sequences), ("scan_output_directions", results)):
        need(set(c.numbers(name, (0,) * count)) <= {0, 1}, "a direction that is none")
    inside = [ValueType(v.type, v.shape) for v in states] + [ValueType(v.type, v.shape[1:]) for v in walked]
    need(len(body.inputs) == len(inside), "a body with other inputs")
    own = Inferred(ChainMap({}, known.values), lasting=set(known.lasting), steady=set(known.steady))
    for declared, value in zip(body.inputs, inside, strict=True):
        need(
            declared.type == value.type and (declared.dims is None or declared.dims == value.shape),
            f"'{declared.name}' in the body",
        )
        _add(own, declared.name, value)
    _walk(body, own)
    ends = [own.values.get(declared.name) for declared in body.outputs]
    finals = [v for v in ends if v is not None]
    need(len(finals) == len(ends) and len({v.name for v in body.outputs}) == len(ends), "a body that does not end")
    need(
        all(s.dims is None and s.type == v.type for s, v in zip(body.outputs, finals, strict=True)), "ends of the body"
    )
    need(not body.value_info, "sizes said inside a body")
    for before, after in zip(states, finals, strict=False):
        need((before.type, before.shape) == (after.type, after.shape), "a state that changes")
    here = own.values.maps[0] if isinstance(own.values, ChainMap) else own.values
    handed = [v.name for v in (*body.inputs[: len(states)], *body.outputs)]  # two of each state: one read, one written
    c.scratch = peak(own.steps, {name: v.bytes for name, v in here.items()}, handed, own.lasting)
    known.constants += own.constants  # a body's constants stay as those around it do
    known.loading += own.loading
    captured = {name for step in own.steps for name in step.reads if name not in here}
    length = walked[0].shape[0]
    stacked = [sized(v.type, (length, *v.shape)) for v in finals[len(states) :]]
    return [*(ValueType(v.type, v.shape) for v in states), *stacked], tuple(sorted(captured))


def peak(steps: list[Step], sizes: Mapping[str, int], held: Iterable[str], lasting: set[str]) -> int:
    """The most bytes alive at one time, if each value lives from its making to its last use.

    What is `held` is there from beginning to end; what is `lasting` is counted elsewhere.
    """
    always = set(held)
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        last.update(dict.fromkeys((*step.writes, *step.reads), i))
    now = most = sum(sizes.get(name, 0) for name in always)
    alive: dict[str, int] = {}
    for i, step in enumerate(steps):
        for name in step.writes:
            if name not in always and name not in lasting:
                alive[name] = sizes.get(name, 0)
                now += alive[name]
        most = max(most, now + step.scratch)
        for name in {*step.reads, *step.writes}:
            if last[name] == i:
                now -= alive.pop(name, 0)
    return most
