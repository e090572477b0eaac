"""What is known of a value of a graph before it runs, and what an operator is told about its inputs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from edgefl.learn.models.onnx_file import BOOL, DOUBLE, FLOAT, INT32, INT64, WIDTH, Attribute, OnnxTensor

TYPES = {FLOAT, INT32, INT64, BOOL, DOUBLE}
REALS, WHOLES = {FLOAT, DOUBLE}, {INT32, INT64}
FEW = 64  # numbers whose content is followed: shapes, axes, paddings
HIGHEST = 2**62  # of a whole number that is followed, and of the numbers in a value


class UnfitCall(Exception):  # noqa: N818 - it becomes an error of the peer's
    """A call of an operator that must not be made, and why."""


def need(condition: object, why: str) -> None:
    if not condition:
        raise UnfitCall(why)


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type and shape of a value for one batch size."""

    type: int
    shape: tuple[int, ...]
    numbers: "tuple[int | float, ...] | None" = None  # its content, where that follows from the file and the batch size
    within: "tuple[int, int] | None" = None  # the lowest and highest number in it, where a Clip says so

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * WIDTH[self.type]


@dataclass(slots=True)
class OnnxCall:
    """One call of an operator: what it is given, and, once its rule has run, what it costs beyond its results."""

    op: str
    given: "list[ValueType | None]"  # None: left out
    attributes: "dict[str, Attribute]"
    results: int
    work: int = 0  # multiplications and additions, or numbers looked at
    scratch: int = 0  # bytes

    def __getitem__(self, i: int) -> ValueType:
        """The input at this place."""
        value = self.given[i] if i < len(self.given) else None
        if value is None:
            raise UnfitCall(f"input {i} is missing")
        return value

    def has(self, i: int) -> bool:
        return i < len(self.given) and self.given[i] is not None

    def wholes(self, i: int) -> tuple[int, ...]:
        """The whole numbers of an input, which must not depend on data."""
        value = self[i]
        need(value.type in WHOLES and value.numbers is not None, f"input {i} depends on data")
        return tuple(int(n) for n in value.numbers or ())

    def number(self, name: str, default: int = 0) -> int:
        value = self.attributes.get(name, default)
        need(isinstance(value, int), f"the attribute '{name}' is no whole number")
        return value if isinstance(value, int) else 0

    def flag(self, name: str, default: int = 0) -> bool:
        value = self.number(name, default)
        need(value in (0, 1), f"the attribute '{name}' is neither yes nor no")
        return bool(value)

    def numbers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self.attributes.get(name, default)
        need(isinstance(value, tuple) and len(value) == len(default), f"the attribute '{name}' has another length")
        return value if isinstance(value, tuple) else ()

    def axis(self, rank: int, default: int = 0) -> int:
        return place(self.number("axis", default), rank)


Rule: TypeAlias = "Callable[[OnnxCall], list[ValueType]]"


def place(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    need(-rank <= axis < rank, f"there is no axis {axis}")
    return axis % rank


def places(axes: Iterable[int], rank: int) -> list[int]:
    """Different axes, counted from the front."""
    counted = [place(axis, rank) for axis in axes]
    need(len(set(counted)) == len(counted), "an axis is given twice")
    return counted


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that values of these shapes have together."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = tuple(next((d for d in dims if d != 1), 1) for dims in zip(*padded, strict=True))
    for dims in zip(*padded, result, strict=True):
        need(all(d in (1, dims[-1]) for d in dims), f"the shapes {shapes} do not go together")
    return result


def sized(type: int, shape: Iterable[int], numbers: "Iterable[int | float] | None" = None) -> ValueType:
    """A value of this type and shape, if there can be one."""
    dims = tuple(shape)
    need(type in TYPES, f"values of type {type}")
    need(all(0 <= d < HIGHEST for d in dims) and prod(dims) < HIGHEST, f"the shape {dims}")
    content = None if numbers is None or prod(dims) > FEW else tuple(numbers)
    if content is not None:
        highest = 2**31 if type == INT32 else HIGHEST  # beyond, onnxruntime begins again at the other end
        need(len(content) == prod(dims) and all(-highest < n < highest for n in content), "numbers out of range")
    return ValueType(type, dims, content)


def of_constant(tensor: OnnxTensor) -> ValueType:
    """What is known of a constant."""
    need(tensor.raw is not None, f"the constant '{tensor.name}' is not written as plain bytes")
    if tensor.type in WHOLES | {FLOAT} and prod(tensor.dims) <= FEW:
        content = tensor.numbers()
        if all(-HIGHEST <= n <= HIGHEST for n in content):
            return ValueType(tensor.type, tensor.dims, content)
    return sized(tensor.type, tensor.dims)
