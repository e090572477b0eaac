"""What a device checks before it gives a graph to onnxruntime, with nothing but the standard library.

A graph from the network must keep everything inside its file, use standard operators only, and say how large each
of its values is, so that the memory it needs is known before any of it is taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from edgefl.errors import RemoteError

STANDARD = ("", "ai.onnx")
DEEPEST = 4  # bodies of loops inside bodies of loops
MOST_NODES = 200_000
WIDTH = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}  # bytes per ONNX type
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field: TypeAlias = tuple[int, "int | memoryview"]  # its number, and a number or bytes


@dataclass(slots=True)
class Shape:
    """Type and sizes of a value; a size in text is a multiple of the batch size, such as `16N`."""

    type: int
    dims: "tuple[int | str, ...]"

    def bytes(self, batch: int) -> int:
        """How much memory it takes."""
        return prod(size(d, batch) for d in self.dims) * WIDTH.get(self.type, 8)


@dataclass(slots=True)
class Summary:
    """What matters of a graph: its operators, what each reads and writes, and the size of all values."""

    steps: list[tuple[list[str], list[str]]] = field(default_factory=list)
    sizes: dict[str, Shape] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    constants: int = 0  # bytes


def verify(graph: bytes, *, batch: int, limit: int) -> int:
    """The memory in bytes that this graph needs for a batch of that size; RemoteError if it must not run."""
    try:
        summary = Summary()
        _model(memoryview(graph), summary)
        need = peak(summary, batch)
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise RemoteError("model.malformed", f"not an ONNX graph: {error}") from None
    if need > limit:
        raise RemoteError(
            "model.too_large", f"the graph needs {need >> 20} MiB for a batch of {batch}, allowed are {limit >> 20} MiB"
        )
    return need


def peak(summary: Summary, batch: int) -> int:
    """The most bytes alive at one time, if each value lives from its making to its last use."""
    last: dict[str, int] = {}
    for i, (reads, _) in enumerate(summary.steps):
        last.update(dict.fromkeys(reads, i))
    last.update(dict.fromkeys((*summary.inputs, *summary.outputs), len(summary.steps)))
    nameless = next(
        (n for _, writes in summary.steps for n in (*summary.inputs, *writes) if n not in summary.sizes), None
    )
    if nameless is not None:
        raise RemoteError("model.too_large", f"the graph does not say how large its value '{nameless}' is")
    held = {name: summary.sizes[name].bytes(batch) for name in summary.inputs}
    now = most = sum(held.values())
    for i, (reads, writes) in enumerate(summary.steps):
        for name in writes:
            held[name] = summary.sizes[name].bytes(batch)
            now += held[name]
        most = max(most, now)
        for name in {*reads, *writes}:
            if last.get(name, i) == i:
                now -= held.pop(name, 0)
    return most + summary.constants


def size(dim: int | str, batch: int) -> int:
    """A size of a value, for a batch of so many samples."""
    if isinstance(dim, int):
        return dim
    return int(dim[:-1] or 1) * batch


def fields(data: memoryview) -> Iterator[Field]:
    """The fields of a protobuf message, in the order they are written."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
        else:
            if kind == BYTES:
                size, at = _varint(data, at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise ValueError(f"wire type {kind}")
            if at + size > len(data):
                raise ValueError("it ends in the middle of a field")
            yield key >> 3, data[at : at + size]
            at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number that does not end")


def _parts(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields that are messages or text."""
    for number, value in fields(data):
        if isinstance(value, memoryview):
            yield number, value


def _text(value: memoryview) -> str:
    return bytes(value).decode()


def _model(data: memoryview, summary: Summary) -> None:
    graphs = []
    for number, value in _parts(data):
        if number == 8:  # opset_import: domain, version
            _standard(next((_text(v) for n, v in _parts(value) if n == 1), ""))
        elif number == 7:
            graphs.append(value)
        elif number in (20, 25):
            raise RemoteError(
                "model.domain", "the graph defines functions or training of its own; only operators may be used"
            )
    if len(graphs) != 1:
        raise ValueError(f"{len(graphs)} graphs in the file")
    _graph(graphs[0], summary, depth=0)


def _standard(domain: str) -> None:
    if domain not in STANDARD:
        raise RemoteError("model.domain", f"the graph uses operators of '{domain}'; only standard ONNX may be used")


def _graph(data: memoryview, summary: Summary, *, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError("loops are nested too deeply")
    for number, value in _parts(data):
        if number == 1:
            _node(value, summary, depth)
        elif number == 5:
            summary.constants += _tensor(value)
        elif number in (11, 12, 13) and depth == 0:
            name, shape = _value(value)
            if shape:
                summary.sizes[name] = shape
            {11: summary.inputs, 12: summary.outputs, 13: []}[number].append(name)
        elif number == 15:
            raise ValueError("sparse constants")


def _node(data: memoryview, summary: Summary, depth: int) -> None:
    reads, writes = [], []
    for number, value in _parts(data):
        if number == 1:
            reads.append(_text(value))
        elif number == 2:
            writes.append(_text(value))
        elif number == 7:
            _standard(_text(value))
        elif number == 5:
            _attribute(value, summary, depth)
    if depth == 0:
        summary.steps.append((reads, [w for w in writes if w]))
    if len(summary.steps) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} operators")


def _attribute(data: memoryview, summary: Summary, depth: int) -> None:
    for number, value in _parts(data):
        if number in (5, 10):
            summary.constants += _tensor(value)
        elif number in (6, 11):
            _graph(value, summary, depth=depth + 1)
        elif number in (22, 23):
            raise ValueError("sparse constants")


def _tensor(data: memoryview) -> int:
    """The size of a constant, which must lie in the file itself."""
    for number, value in fields(data):
        if number == 13 or (number == 14 and value):
            raise RemoteError("model.external_data", "the graph keeps data outside its file; everything must be inside")
    return len(data)


def _value(data: memoryview) -> tuple[str, Shape | None]:
    name, shape = "", None
    for number, value in _parts(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for kind, tensor in _parts(value):
                if kind != 1:
                    raise ValueError(f"'{name}' is no tensor")
                shape = _tensor_type(tensor)
    return name, shape


def _tensor_type(data: memoryview) -> Shape | None:
    type, dims = 0, None
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            type = value
        elif number == 2 and isinstance(value, memoryview):
            dims = tuple(_dim(d) for n, d in _parts(value) if n == 1)
    return None if dims is None or None in dims else Shape(type, tuple(d for d in dims if d is not None))


def _dim(data: memoryview) -> int | str | None:
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            return value
        if number == 2 and isinstance(value, memoryview):
            text = _text(value)
            return text if text[-1:] == "N" and (text[:-1].isdecimal() or text == "N") else None
    return None
