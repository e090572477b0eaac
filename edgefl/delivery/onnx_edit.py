"""An ONNX file that is changed and written with nothing but the standard library and numpy: devices lack package onnx.

A file is protobuf: numbered fields, one behind another. What is not changed is passed on as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgefl.base.vector import Array
from edgefl.learn.models.onnx_file import BYTES, FLOAT, INT64, VARINT, wire_fields

TYPES = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64}
# Numbers of fields: of a model, of its graph, and of the parts of a graph.
PRODUCER, PRODUCER_VERSION, MODEL_VERSION, GRAPH, PROPERTIES = 2, 3, 5, 7, 14
NODE, GRAPH_NAME, CONSTANT, INPUT, OUTPUT, VALUE = 1, 2, 5, 11, 12, 13
NAME, READS, WRITES = 1, 1, 2  # of a value; of a node


@dataclass(slots=True)
class OnnxEdit:
    """A model's graph, part by part; each part is the bytes that it has in the file."""

    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)  # what is said about the values in between
    of_graph: list[bytes] = field(default_factory=list)  # whole fields that stay as they are
    of_model: list[bytes] = field(default_factory=list)

    @classmethod
    def opened(cls, data: bytes) -> "OnnxEdit":
        """Return the model in these bytes."""
        model = cls()
        parts = {
            NODE: model.nodes,
            CONSTANT: model.constants,
            INPUT: model.inputs,
            OUTPUT: model.outputs,
            VALUE: model.values,
        }
        for number, kind, content in wire_fields(memoryview(data)):
            if number != GRAPH:
                model.of_model.append(_field(number, kind, content))
                continue
            assert isinstance(content, memoryview)  # noqa: S101 - a graph is no number
            for part, wire, inside in wire_fields(content):
                if part in parts and isinstance(inside, memoryview):
                    parts[part].append(bytes(inside))
                else:
                    model.of_graph.append(_field(part, wire, inside))
        return model

    def written(self) -> bytes:
        """Return the file."""
        parts = {NODE: self.nodes, CONSTANT: self.constants, INPUT: self.inputs, OUTPUT: self.outputs}
        parts |= {VALUE: self.values}
        graph = [_field(number, BYTES, one) for number, several in parts.items() for one in several]
        return b"".join([*self.of_model, _field(GRAPH, BYTES, b"".join([*graph, *self.of_graph]))])

    def describe(self, name: str, producer: tuple[str, str], version: int, facts: Mapping[str, str]) -> None:
        """Say this about the file, and nothing that was said before."""
        told = {PRODUCER: producer[0], PRODUCER_VERSION: producer[1]}
        gone = {*told, MODEL_VERSION, PROPERTIES}
        self.of_model = [part for part in self.of_model if _number(part) not in gone]
        self.of_model += [_text(number, text) for number, text in told.items()]
        self.of_model.append(_field(MODEL_VERSION, VARINT, version))
        self.of_model += [_field(PROPERTIES, BYTES, _text(1, key) + _text(2, facts[key])) for key in sorted(facts)]
        self.of_graph = [part for part in self.of_graph if _number(part) != GRAPH_NAME] + [_text(GRAPH_NAME, name)]

    def rename(self, old: str, new: str, *, reads_alone: bool = False) -> None:
        """Give a value another name wherever a node reads it, and unless `reads_alone` where one writes it."""
        where = {READS} if reads_alone else {READS, WRITES}
        self.nodes = [_renamed(one, where, old, new) for one in self.nodes]


def name_of(value: bytes) -> str:
    """The name of what is said about a value."""
    return next(str(content, "utf-8") for number, _, content in wire_fields(memoryview(value)) if number == NAME)  # type: ignore[arg-type]  # a text


def named(value: bytes, name: str) -> bytes:
    """The same said about a value of another name."""
    return _renamed(value, {NAME}, name_of(value), name)


def tensor(name: str, array: Array) -> bytes:
    """A constant."""
    dims = b"".join(_field(1, VARINT, size) for size in array.shape)
    content = np.ascontiguousarray(array).tobytes()
    return dims + _field(2, VARINT, TYPES[array.dtype]) + _text(8, name) + _field(9, BYTES, content)


def node(op: str, reads: Iterable[str], writes: Iterable[str], **attributes: int) -> bytes:
    """A call of an operator; its attributes are whole numbers."""
    parts = [*(_text(READS, name) for name in reads), *(_text(WRITES, name) for name in writes), _text(4, op)]
    for name, number in attributes.items():
        parts.append(_field(5, BYTES, _text(1, name) + _field(3, VARINT, number) + _field(20, VARINT, 2)))
    return b"".join(parts)


def value(name: str, kind: int, dims: Iterable[int | str]) -> bytes:
    """What is said about a value: its type, and its sizes, of which a text stands for the batch."""
    sizes = (_text(2, size) if isinstance(size, str) else _field(1, VARINT, size) for size in dims)
    shape = b"".join(_field(1, BYTES, size) for size in sizes)
    return _text(NAME, name) + _field(2, BYTES, _field(1, BYTES, _field(1, VARINT, kind) + _field(2, BYTES, shape)))


def _renamed(message: bytes, where: set[int], old: str, new: str) -> bytes:
    changed = []
    for number, kind, content in wire_fields(memoryview(message)):
        hit = number in where and isinstance(content, memoryview) and bytes(content) == old.encode()
        changed.append(_text(number, new) if hit else _field(number, kind, content))
    return b"".join(changed)


def _text(number: int, text: str) -> bytes:
    return _field(number, BYTES, text.encode())


def _field(number: int, kind: int, content: int | bytes | memoryview) -> bytes:
    key = _varint(number << 3 | kind)
    if isinstance(content, int):
        return key + _varint(content)
    return key + (_varint(len(content)) if kind == BYTES else b"") + bytes(content)


def _number(part: bytes) -> int:
    """The number of a whole field."""
    return next(number for number, _, _ in wire_fields(memoryview(part)))


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)
