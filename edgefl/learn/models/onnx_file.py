"""An ONNX file, read with nothing but the standard library, and strictly.

onnxruntime must see the same graph as we do. So everything that two readers of protobuf could understand differently
is refused: an unknown field, a field of the wrong wire type, a field that is given twice.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from struct import unpack
from typing import TypeAlias

from edgefl.base.errors import RemoteError

STANDARD = ("", "ai.onnx")
DEEPEST = 4  # bodies of loops inside bodies of loops
MOST_NODES = 20_000  # which take onnxruntime some ten seconds to load
MOST_AXES = 64
MOST_FIELDS = 100_000  # of one message
MOST_TEXT = 8 << 20  # bytes of a file besides its constants: fields become objects, which are many times as large
FLOAT, INT32, INT64, BOOL, DOUBLE = 1, 6, 7, 9, 11
WIDTH = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}  # bytes per ONNX type
FORMAT = {FLOAT: "f", INT32: "i", INT64: "q", BOOL: "?", DOUBLE: "d"}  # of `struct`, for contents that we read
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Dim: TypeAlias = "int | str | None"  # text: a multiple of the batch size (`16N`), or `K` mini-batches; None: not said
Attribute: TypeAlias = "int | float | str | tuple[int, ...] | OnnxTensor | OnnxGraph | None"  # None: no node reads it
Fields: TypeAlias = "dict[int, list[int | memoryview]]"


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """A constant; its content lies in the file."""

    name: str
    type: int
    dims: tuple[int, ...]
    raw: "memoryview | None"  # None where the file writes numbers in another way
    bytes: int  # in the file

    def numbers(self) -> "tuple[int | float, ...]":
        """Its content."""
        form = f"<{prod(self.dims)}{FORMAT.get(self.type, '')}"
        if self.raw is None or self.type not in FORMAT:
            raise ValueError(f"the constant '{self.name}' is not written as plain bytes")
        return unpack(form, self.raw)


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """What the file says about a value: its type and sizes."""

    name: str
    type: int
    dims: "tuple[Dim, ...] | None"


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A call of an operator."""

    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attributes: "Mapping[str, Attribute]"


@dataclass(slots=True)
class OnnxGraph:
    """What matters of a graph."""

    nodes: list[OnnxNode] = field(default_factory=list)
    constants: dict[str, OnnxTensor] = field(default_factory=dict)
    inputs: list[OnnxValue] = field(default_factory=list)
    outputs: list[OnnxValue] = field(default_factory=list)
    value_info: list[OnnxValue] = field(default_factory=list)  # about values in between

    def bodies(self) -> "Iterator[OnnxGraph]":
        """The graphs inside its nodes."""
        for node in self.nodes:
            for attribute in node.attributes.values():
                if isinstance(attribute, OnnxGraph):
                    yield attribute
                    yield from attribute.bodies()

    def tensors(self) -> "Iterator[OnnxTensor]":
        """Its constants, those inside its nodes too."""
        yield from self.constants.values()
        for node in self.nodes:
            yield from (attribute for attribute in node.attributes.values() if isinstance(attribute, OnnxTensor))


# Of each message: which fields there may be, and how they are written; those that may come more than once are negative.
MODEL = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES, -8: BYTES, -14: BYTES}
OPSET = {1: BYTES, 2: VARINT}
GRAPH = {-1: BYTES, 2: BYTES, -5: BYTES, 10: BYTES, -11: BYTES, -12: BYTES, -13: BYTES, -14: BYTES, -16: BYTES}
NODE = {-1: BYTES, -2: BYTES, 3: BYTES, 4: BYTES, -5: BYTES, 6: BYTES, 7: BYTES, -9: BYTES}
ATTRIBUTE = {
    1: BYTES, 2: FIXED32, 3: VARINT, 4: BYTES, 5: BYTES, 6: BYTES, -7: FIXED32, -8: VARINT, -9: BYTES, 13: BYTES,
    20: VARINT,
}  # fmt: skip
TENSOR = {
    -1: VARINT, 2: VARINT, -4: FIXED32, -5: VARINT, -7: VARINT, 8: BYTES, 9: BYTES, -10: FIXED64, -11: VARINT,
    12: BYTES, 14: VARINT, -16: BYTES,
}  # fmt: skip
VALUE = {1: BYTES, 2: BYTES, 3: BYTES, -4: BYTES}
TYPE = {1: BYTES, 6: BYTES}
TENSOR_TYPE = {1: VARINT, 2: BYTES}
SHAPE = {-1: BYTES}
DIM = {1: VARINT, 2: BYTES, 3: BYTES}
UNREAD = {4, 5, 7, 10, 11}  # where a constant keeps its numbers if they are not plain bytes
FILLED = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9}  # which field an attribute of each type fills


def read_file(data: bytes) -> OnnxGraph:
    """The graph of an ONNX file; RemoteError if it is none, or one that must not run."""
    try:
        return _model(memoryview(data))
    except (IndexError, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        raise RemoteError("model.malformed", f"not an ONNX graph: {error}") from None


def _model(data: memoryview) -> OnnxGraph:
    for number, _, _ in wire_fields(data):
        if number in (20, 25):
            raise RemoteError(
                "model.domain", "the graph defines functions or training of its own; only operators may be used"
            )
    fields = _message(data, MODEL)
    for opset in _parts(fields, 8):
        _standard(_text(_message(opset, OPSET), 1))
    graphs = _parts(fields, 7)
    if len(graphs) != 1:
        raise ValueError("no graph in the file")
    graph = _graph(graphs[0], depth=0)
    every = (graph, *graph.bodies())
    if max(sum(len(part.nodes) for part in every), sum(len(part.constants) for part in every)) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} operators or constants in all loops together")
    return graph


def _standard(domain: str) -> None:
    if domain not in STANDARD:
        raise RemoteError("model.domain", f"the graph uses operators of '{domain}'; only standard ONNX may be used")


def _graph(data: memoryview, *, depth: int) -> OnnxGraph:
    if depth > DEEPEST:
        raise ValueError("loops are nested too deeply")
    constants = sum(
        len(value) for number, _, value in wire_fields(data) if number == 5 and isinstance(value, memoryview)
    )
    if len(data) - constants > MOST_TEXT:
        raise ValueError(f"more than {MOST_TEXT >> 20} MiB besides its constants")
    fields = _message(data, GRAPH)
    if max(len(fields.get(1, ())), len(fields.get(5, ()))) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} operators or constants")
    graph = OnnxGraph(
        [_node(part, depth) for part in _parts(fields, 1)],
        inputs=[_value(part) for part in _parts(fields, 11)],
        outputs=[_value(part) for part in _parts(fields, 12)],
        value_info=[_value(part) for part in _parts(fields, 13)],
    )
    for part in _parts(fields, 5):
        tensor = _tensor(part)
        if not tensor.name or tensor.name in graph.constants:
            raise ValueError(f"the constant '{tensor.name}' is there twice, or has no name")
        graph.constants[tensor.name] = tensor
    return graph


def _node(data: memoryview, depth: int) -> OnnxNode:
    fields = _message(data, NODE)
    _standard(_text(fields, 7))
    attributes = dict(_attribute(part, depth) for part in _parts(fields, 5))
    if len(attributes) != len(fields.get(5, ())):
        raise ValueError("an attribute is given twice")
    reads, writes = (tuple(str(part, "utf-8") for part in _parts(fields, number)) for number in (1, 2))
    return OnnxNode(_text(fields, 4), reads, writes, attributes)


def _attribute(data: memoryview, depth: int) -> tuple[str, Attribute]:
    fields = _message(data, ATTRIBUTE)
    name, type = _text(fields, 1), _number(fields, 20)
    if {number for number in fields if number not in (1, 13, 20)} - {FILLED.get(type)}:
        raise ValueError(f"the attribute '{name}' is not of the type it says")
    return name, _content(fields, type, depth)


def _content(fields: Fields, type: int, depth: int) -> Attribute:  # noqa: PLR0911  one line for each type
    match type:
        case 1:
            return float(unpack("<f", _parts(fields, 2)[0])[0]) if 2 in fields else 0.0
        case 2:
            return _number(fields, 3)
        case 3:
            return _text(fields, 4)
        case 4:
            return _tensor(_parts(fields, 5)[0])
        case 5:
            return _graph(_parts(fields, 6)[0], depth=depth + 1)
        case 7:
            return _numbers(fields, 8)
        case 6 | 8:
            return None
    raise ValueError(f"an attribute of type {type}")


def _tensor(data: memoryview) -> OnnxTensor:
    for number, _, value in wire_fields(data):
        if number == 13 or (number == 14 and value):
            raise RemoteError("model.external_data", "the graph keeps data outside its file; everything must be inside")
    fields = _message(data, TENSOR, UNREAD)
    dims, type, name = _numbers(fields, 1), _number(fields, 2), _text(fields, 8)
    if len(dims) > MOST_AXES or any(d < 0 for d in dims):
        raise ValueError(f"the constant '{name}' has sizes below zero, or too many")
    plain = 9 in fields and not UNREAD & fields.keys()
    raw = _parts(fields, 9)[0] if plain else None
    if raw is not None and len(raw) != prod(dims) * WIDTH.get(type, 0):
        raise ValueError(f"the constant '{name}' is not as long as it says")
    return OnnxTensor(name, type, dims, raw, len(data))


def _value(data: memoryview) -> OnnxValue:
    fields = _message(data, VALUE)
    name, type, dims = _text(fields, 1), 0, None
    for part in _parts(fields, 2):
        tensors = _parts(_message(part, TYPE), 1)
        if not tensors:
            raise ValueError(f"'{name}' is no tensor")
        tensor = _message(tensors[0], TENSOR_TYPE)
        type = _number(tensor, 1)
        for shape in _parts(tensor, 2):
            dims = tuple(_dim(d) for d in _parts(_message(shape, SHAPE), 1))
    return OnnxValue(name, type, dims)


def _dim(data: memoryview) -> Dim:
    fields = _message(data, DIM)
    if 1 in fields and 2 in fields:
        raise ValueError("a size that is a number and a text")
    if 1 in fields:
        return _number(fields, 1)
    text = _text(fields, 2)
    if text == "K":
        return text
    return text if text[-1:] == "N" and (text == "N" or (text[:-1].isascii() and text[:-1].isdigit())) else None


def _message(data: memoryview, allowed: Mapping[int, int], unread: Container[int] = ()) -> Fields:
    """The fields of a message, each in the order they are written; of `unread` ones, only that they are there."""
    fields: Fields = {}
    for count, (number, wire, value) in enumerate(wire_fields(data)):
        many = -number in allowed
        expected = allowed.get(-number if many else number)
        packed = many and wire == BYTES and expected != BYTES
        if expected is None or (wire != expected and not packed) or (number in fields and not many):
            raise ValueError(f"field {number} is unknown, of another form, or given twice")
        if number in unread:
            fields[number] = []
            continue
        if count > MOST_FIELDS:
            raise ValueError(f"a message of more than {MOST_FIELDS} fields")
        if packed and expected == VARINT and isinstance(value, memoryview):
            fields.setdefault(number, []).extend(_packed(value))
        else:
            fields.setdefault(number, []).append(value)
    return fields


def wire_fields(data: memoryview) -> Iterator[tuple[int, int, "int | memoryview"]]:
    """Number, wire type and content of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, kind, value
        else:
            if kind == BYTES:
                size, at = _varint(data, at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise ValueError(f"wire type {kind}")
            if at + size > len(data):
                raise ValueError("it ends in the middle of a field")
            yield key >> 3, kind, data[at : at + size]
            at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128 and value < 2**64:
            return value, at
    raise ValueError("a number that does not end")


def _packed(data: memoryview) -> Iterator[int]:
    if len(data) > MOST_FIELDS:
        raise ValueError(f"a list of more than {MOST_FIELDS} numbers")
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _parts(fields: Fields, number: int) -> list[memoryview]:
    return [value for value in fields.get(number, ()) if isinstance(value, memoryview)]


def _numbers(fields: Fields, number: int) -> tuple[int, ...]:
    """Whole numbers of 64 bits, with their sign."""
    return tuple(v - 2**64 if v >= 2**63 else v for v in fields.get(number, ()) if isinstance(v, int))


def _number(fields: Fields, number: int) -> int:
    return next(iter(_numbers(fields, number)), 0)


def _text(fields: Fields, number: int) -> str:
    return next((str(value, "utf-8") for value in _parts(fields, number)), "")
