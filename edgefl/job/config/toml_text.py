"""TOML as text: how a value is written, and on which line of a file a key stands."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

Way: TypeAlias = tuple[str | int, ...]  # the way to a value: names of tables and keys, numbers in arrays of tables

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.-]|"[^"]*"|'[^']*'|\s)+?)\s*=""")
_QUOTES = ('"""', "'''")


def written(value: Any) -> str:  # Any: whatever TOML can say
    """The value as it stands in a TOML file."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{name(key)} = {written(v)}" for key, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(v) for v in value)}]"
    # JSON writes strings, numbers and booleans as TOML does, but for a character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def table(title: str, values: Mapping[str, Any]) -> str:  # Any: whatever TOML can say
    """A table under its title; tables inside it stand in one line each."""
    return "\n".join([f"[{title}]", *(f"{name(key)} = {written(value)}" for key, value in values.items())]) + "\n"


def name(key: str) -> str:
    """The key as it stands in a TOML file."""
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def leaves(value: Any, at: Way = ()) -> dict[Way, Any]:  # Any: whatever TOML can say
    """Every value that is not a table, by its way; an empty table is a value too."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, Mapping):
        inner = list(value.items())
    elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        inner = list(enumerate(value))
    if not inner:
        return {at: value}
    return {path: leaf for key, each in inner for path, leaf in leaves(each, (*at, key)).items()}


def key_lines(text: str) -> dict[Way, int]:
    """The line of every key and every table of a file; what is inside an inline table stands on the line of its key."""
    line_numbers: dict[Way, int] = {}
    table: Way = ()
    counts: dict[Way, int] = {}
    closing = ""  # the quotes that end the string we are in, if it has several lines
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if header := _HEADER.match(line):
            table = _split(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
            table = _numbered(table, counts)
            line_numbers[table] = number
        elif key := _KEY.match(line):
            line_numbers[(*table, *_split(key[1]))] = number
        closing = next((quotes for quotes in _QUOTES if line.count(quotes) % 2), "")
    return line_numbers


def line_of(path: Way, lines: Mapping[Way, int]) -> int | None:
    """The line where this value begins, or the table it is in."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"""(?:"[^"]*"|'[^']*'|[^.])+""", dotted))


def _numbered(table: Way, counts: Mapping[Way, int]) -> Way:
    """The way to a table: behind each array of tables, which one of them."""
    way: Way = ()
    for i, part in enumerate(table):
        way = (*way, part)
        if table[: i + 1] in counts:
            way = (*way, counts[table[: i + 1]])
    return way
