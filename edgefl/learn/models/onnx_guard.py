"""What a device checks before it gives a graph to onnxruntime, with nothing but the standard library.

A graph from the network must keep everything inside its file and use only operators that our exporter writes. What it
binds must have the names, types and shapes of what it is given. How large each of its values is follows from those,
node by node (`onnx_infer`); what the file says about it is compared and never believed. So the memory that it needs,
and the longest step that nothing can interrupt, are known before any of it runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from edgefl.base.errors import RemoteError
from edgefl.learn.models.onnx_file import WIDTH, Dim, OnnxGraph, OnnxValue, read_file
from edgefl.learn.models.onnx_infer import Step, infer, peak
from edgefl.learn.models.onnx_values import ValueType


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph binds for a batch of one size, and the memory it needs for that."""

    inputs: dict[str, ValueType]
    outputs: dict[str, ValueType]
    need: int  # bytes


def verify(
    graph: OnnxGraph, given: Mapping[str, ValueType], steady: Iterable[str], *, batch: int, limit: int, steps: int = 1
) -> Signature:
    """What a graph from the network binds of what it is `given`; RemoteError if it must not run.

    The shapes of `steady` are the same for every batch; one call is for `steps` batches.
    """
    sizes = SymbolSizes(batch, steps)
    _fits(graph.inputs, given, sizes, "asks for", "model.binding")
    asked = {value.name: given[value.name] for value in graph.inputs}
    known = infer(graph, asked, set(steady))
    _fits(graph.outputs, known.values, sizes, "gives", "model.binding")
    _fits(graph.value_info, known.values, sizes, "speaks of", "model.shape")
    outputs = {value.name: known.values[value.name] for value in graph.outputs}
    if set(outputs) & (given.keys() | graph.constants.keys()):
        raise RemoteError("model.binding", "the graph gives back what it was given")
    room = {name: value.bytes for name, value in (*given.items(), *known.values.items())}
    held = [name for name in (*given, *outputs) if name not in known.lasting]
    need = peak(known.steps, room, held, known.lasting) + known.constants
    _within(need, batch, limit)
    return Signature(asked, outputs, need)


def verify_own(data: bytes, *, batch: int, limit: int) -> int:
    """The memory in bytes that a file of the operator's own says it needs; RemoteError if it must not run.

    It may use any standard operator, so the sizes it says are believed: they protect from mistakes, not from malice.
    """
    graph = read_file(data)
    declared = {value.name: value for value in (*graph.inputs, *graph.outputs, *graph.value_info)}
    steps = [Step(node.reads, tuple(w for w in node.writes if w), 0) for node in graph.nodes]
    for name in (*(v.name for v in graph.inputs), *(name for step in steps for name in step.writes)):
        if not _has_size(declared.get(name)):
            why = f"the graph does not say how large its value '{name}' is"
            raise RemoteError("model.too_large", why, free_of_data=True)
    sizes = {name: _bytes(value, batch) for name, value in declared.items() if _has_size(value)}
    constants = sum(tensor.bytes for part in (graph, *graph.bodies()) for tensor in part.tensors())
    need = peak(steps, sizes, [v.name for v in (*graph.inputs, *graph.outputs)], set()) + constants
    _within(need, batch, limit)
    return need


class SymbolSizes(NamedTuple):
    """What stands for the letters in a graph's sizes."""

    batch: int
    steps: int = 1

    def of(self, dim: Dim) -> int:
        """A size of a value; below zero if it is not said."""
        if dim == "K":
            return self.steps
        if isinstance(dim, str):
            return int(dim[:-1] or 1) * self.batch
        return -1 if dim is None else dim


def _fits(declared: list[OnnxValue], known: Mapping[str, ValueType], sizes: SymbolSizes, what: str, code: str) -> None:
    if len({value.name for value in declared}) != len(declared):
        raise RemoteError(code, "the graph names a value twice")
    for value in declared:
        true = known.get(value.name)
        if true is None:
            raise RemoteError(code, f"the graph {what} '{value.name}', which is not there")
        shape = None if value.dims is None else tuple(sizes.of(d) for d in value.dims)
        if value.type != true.type or shape != true.shape:
            raise RemoteError(
                code,
                f"the graph {what} '{value.name}' of type {value.type} and shape {shape} for a batch of {sizes.batch},"
                f" where type {true.type} and shape {true.shape} is true",
            )


def _within(need: int, batch: int, limit: int) -> None:
    if need > limit:
        raise RemoteError(
            "model.too_large",
            f"the graph needs {need >> 20} MiB for a batch of {batch}, allowed are {limit >> 20} MiB",
            free_of_data=True,
        )


def _has_size(value: OnnxValue | None) -> bool:
    return value is not None and value.dims is not None and None not in value.dims


def _bytes(value: OnnxValue, batch: int) -> int:
    dims = [SymbolSizes(batch).of(d) for d in value.dims or ()]
    if any(d < 0 for d in dims):
        raise RemoteError("model.malformed", f"'{value.name}' has sizes below zero")
    return prod(dims) * WIDTH.get(value.type, 8)
