"""What pydantic finds wrong with a table of the user's, in one line: key, value, remedy."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from edgefl.base.errors import nearest

UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}  # of a model, of a dataclass

# What pydantic names by the types of our program, in words of the file.
SHAPES = {
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "dataclass_type": "expected a table",
}


def explain(
    error: ValidationError,
    known: Callable[[list[str]], Iterable[str]],
    shown: Callable[[Any], Any] = lambda value: value,
    elsewhere: Callable[[str], Sequence[str]] = lambda _: (),
) -> str:
    """Explain the first mistake in one line.

    `known` gives the keys of the table at a place, and `shown` the part of a value that may be printed. `elsewhere`
    gives the places of other tables that have a key of this name.
    """
    first = error.errors()[0]
    *table, last = [str(part) for part in first["loc"]] or [""]
    key = ".".join([*table, last])
    if first["type"] in UNKNOWN_KEY:
        return f"unknown key '{key}'; {nearest(last, known(table), elsewhere(last))}"
    message = SHAPES.get(first["type"], first["msg"].removeprefix("Value error, "))
    if not key:
        return message
    if first["type"] == "value_error" and not isinstance(first["input"], str | int | float):
        return f"{key}: {message}"
    return f"{key} = {_written(shown(first['input']))}: {message}"


def _written(value: Any) -> str:  # Any: whatever TOML can say
    """As it stands in a file: `nan` is no word of JSON's."""
    return str(value) if isinstance(value, float) else json.dumps(value, default=str)
