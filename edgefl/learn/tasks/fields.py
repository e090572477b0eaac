"""Several named arrays of a sample as one row of numbers: so they are stored, shuffled, sent and trained on as one.

A row is float32, and holds whole numbers exactly up to 2^24: classes, token numbers, marks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.vector import Array

WHOLE = 2**24  # numbers from here on are not all in float32

Named: TypeAlias = Array | dict[str, Array]  # one array, or several by name


@dataclass(frozen=True, slots=True)
class Field:
    """An array of a sample; where there is only one, it needs no name."""

    name: str
    shape: tuple[int, ...]
    whole: bool = False  # whether these are whole numbers: classes, token numbers
    learnt: bool = True  # whether a loss sees it; False: it is for judging alone

    @property
    def size(self) -> int:
        return prod(self.shape)


Fields: TypeAlias = tuple[Field, ...]


def numbered(count: int) -> tuple[str, ...]:
    """Return names for inputs that came in an order, without names."""
    return tuple(f"input_{i}" for i in range(1, count + 1))


def in_order(fields: Fields) -> bool:
    """Whether these are such inputs: a network takes them one after another, whatever it calls them."""
    return tuple(field.name for field in fields) == numbered(len(fields))


def width(fields: Fields) -> int:
    """How many numbers such a row has."""
    return sum(field.size for field in fields)


def starts(fields: Fields) -> list[int]:
    """Where each of them begins in a row."""
    return [width(fields[:i]) for i in range(len(fields))]


def unpack(fields: Fields, rows: Array) -> dict[str, Array]:
    """The arrays in these rows, by name."""
    return {
        field.name: _typed(field, rows[:, start : start + field.size].reshape(len(rows), *field.shape))
        for field, start in zip(fields, starts(fields), strict=True)
    }


def pack(fields: Fields, named: Mapping[str, Array], dtype: Any = np.float32) -> Array:
    """Rows of these arrays, each a (n, ...)."""
    parts = [np.asarray(named[field.name]).reshape(-1, field.size) for field in fields]
    return np.concatenate(parts, axis=1).astype(dtype, copy=False)


def natural(fields: Fields, rows: Array) -> Named:
    """Return the targets of these rows as a user's function expects them: one array, or several by name."""
    named = {name: part for name, part in unpack(fields, rows).items() if name in {f.name for f in fields if f.learnt}}
    return named.pop("") if list(named) == [""] else named


def as_rows(fields: Fields, given: Named, dtype: Any = np.float32) -> Array:
    """The same back as rows."""
    return pack(fields, given if isinstance(given, Mapping) else {fields[0].name: given}, dtype)


def place(fields: Fields, column: int) -> str:
    """Which number of which array stands in this column, in words."""
    last = [i for i, start in enumerate(starts(fields)) if start <= column][-1]
    field, inside = fields[last], column - starts(fields)[last]
    index = list(map(int, np.unravel_index(inside, field.shape))) if field.shape else []
    return f"{field.name or 'output'}{index or ''}"


def described(fields: Fields) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [{**asdict(field), "shape": list(field.shape)} for field in fields]


def read(table: Sequence[Mapping[str, Any]]) -> Fields:
    """The fields behind such JSON."""
    return tuple(Field(**{**one, "shape": tuple(one["shape"])}) for one in table)


def in_words(fields: Fields) -> str:
    """Names and shapes for a message."""
    return ", ".join(f"{field.name or 'one'} {list(field.shape)}{' whole' if field.whole else ''}" for field in fields)


def _typed(field: Field, part: Array) -> Array:
    return part.astype(np.int64) if field.whole else part
