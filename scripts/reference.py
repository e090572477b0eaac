"""docs/reference.md, made from the models that read the files: every key, its type, default and comment.

python scripts/reference.py [--check]      --check writes nothing: exit 1 if the page is not current
"""
# ruff: noqa: T201 - a script: it prints

import ast
import dataclasses
import inspect
import io
import sys
import textwrap
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from edgefl.job.config import privacy
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import written
from edgefl.learn.algorithms import registry
from edgefl.learn.selection.registry import SELECTIONS
from edgefl.learn.training.local import LocalTraining
from edgefl.server.server_file import ServerFile
from edgefl.wire import codecs

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
HEAD = """# Every key of a run file, of an agent file and of a server file

Made from the program by `make reference`: change the comments there, not this page. `edgefl config show FILE --origin`
shows what is in force and who set it. A key can be overridden: `--set rounds.quorum=3` is strongest, then the
environment (`EDGEFL_ROUNDS__QUORUM=3`), then the file. A key that is not here is refused.
"""
# Tables of which one key chooses what the others are: where they stand, the choosing key, what it can say.
CHOICES: dict[str, tuple[str, Mapping[str, type[Any]]]] = {
    "selection": ("name", SELECTIONS),
    "wire.up": ("codec", codecs.REGISTRY),
    "privacy": ("mechanism", privacy.MECHANISMS),
    "algorithm": ("name", registry.algorithm_registry()),
    "aggregation": ("name", registry.stage_registry()),
}
EXPLAINED = {"algorithm": "hyperparameters.md", "aggregation": "hyperparameters.md", "privacy": "privacy.md"}
WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", Any: "any value"}
BOUNDS = {annotated_types.Ge: "at least", annotated_types.Gt: "above", annotated_types.Le: "at most"}
BOUNDS |= {annotated_types.Lt: "below"}


class Key(NamedTuple):
    """One line of the page."""

    name: str
    kind: str
    default: str
    comment: str
    inner: type[BaseModel] | None  # the table that it is


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, kind in (("Run file", RunFile), ("Agent file", AgentFile), ("Server file", ServerFile)):
        parts += [f"\n# {title}\n", *_tables(kind, "")]
    return "\n".join(parts)


def keys(kind: type[Any]) -> list[Key]:
    """What may stand in this table."""
    hints = typing.get_type_hints(kind, include_extras=True)
    remarks = comments(kind)
    return [
        Key(shown, worded(hints[name]), _default(default), remarks.get(name, ""), _table_in(hints[name]))
        for name, shown, default in _fields(kind)
    ]


def every_key(kind: type[BaseModel], path: str = "") -> Iterator[tuple[str, Key]]:
    """All keys of a file, each with the table that it stands in."""
    for key in keys(kind):
        yield path, key
        if key.inner is not None:
            yield from every_key(key.inner, f"{path}.{key.name}".lstrip("."))


def comments(kind: type[Any]) -> dict[str, str]:
    """What stands beside or above each field of a class, and of those it inherits from."""
    remarks_by_field: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each in {object, BaseModel} or "__annotations__" not in vars(each):
            continue
        source = textwrap.dedent(inspect.getsource(each))
        remarks, alone = _remarks(source)
        (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
        for node in body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                above = list(_above(node.lineno, remarks, alone))
                beside = remarks.get(node.end_lineno or node.lineno, "")
                if remark := " ".join([*above, beside]).strip():
                    remarks_by_field[node.target.id] = remark
    return remarks_by_field


def worded(hint: Any) -> str:  # noqa: PLR0911 - one kind of type, one line
    """A type, for people."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return f"{worded(inside[0])} {', '.join(_bounds(inside[1:]))}".strip()
    if origin is typing.Literal:
        return " or ".join(f"`{written(each)}`" for each in inside)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(worded(each) for each in inside if each is not type(None))
    if origin is tuple:
        if len(inside) == 2 and inside[1] is Ellipsis:
            return f"list of {worded(inside[0])}"
        return f"list of {len(inside)}: {', '.join(worded(each) for each in inside)}"
    if origin is dict:
        return "table" if inside[1] is Any else f"table: name = {worded(inside[1])}"
    return WORDS.get(hint, "table")


def _tables(kind: type[BaseModel], path: str) -> Iterator[str]:
    """The tables of a file, each with those inside it."""
    for key in keys(kind):
        where = f"{path}.{key.name}" if path else key.name
        if key.inner is not None:
            name = f"{where}.NAME" if key.kind.startswith("table: name") else where
            yield f"## [{name}]\n\n{_purpose(key.inner, key.comment)}\n\n{_rows(keys(key.inner))}"
            yield from _tables(key.inner, name)
        elif where in CHOICES:
            yield from _choices(where, key)
        elif not path:
            yield f"## [{where}]\n\n{_sentence(key.comment)}\n"


def _choices(where: str, key: Key) -> Iterator[str]:
    choosing, choices = CHOICES[where]
    title = f"[[{where}]]" if key.kind.startswith("list") else f"[{where}]"
    shared = {field.name: field.default for field in dataclasses.fields(LocalTraining)} if where == "algorithm" else {}
    yield f"## {title}\n\n{_sentence(key.comment)} `{choosing}` chooses one of these, and with it the other keys.\n"
    if where in EXPLAINED:
        yield f"What they mean is in [{EXPLAINED[where]}]({EXPLAINED[where]}).\n"
    lines = [f"| {choosing} | key | type | default | |", "|---|---|---|---|---|"]
    if where == "algorithm":
        lines += [f"| all, unless said below {_row(k)}" for k in keys(LocalTraining)]
    for name, kind in sorted(choices.items()):
        own = [k for k in keys(kind) if k.name not in {"name", "mechanism", "privacy"}]
        own = [k for k in own if k.name not in shared or k.default != _default(shared[k.name])]
        lines += [f'| `"{name}"` {_row(k)}' for k in own] or [f'| `"{name}"` | | | | |']
    yield "\n".join(lines) + "\n"


def _rows(rows: list[Key]) -> str:
    return "\n".join(["| key | type | default | |", "|---|---|---|---|", *(_row(k) for k in rows)]) + "\n"


def _row(key: Key) -> str:
    return f"| `{key.name}` | {_cell(key.kind)} | {_cell(key.default)} | {_cell(key.comment)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _purpose(kind: type[Any], comment: str) -> str:
    """What a table is for."""
    docstring = " ".join((inspect.getdoc(kind) or "").split())
    return f"{docstring} {_sentence(comment)}".strip()


def _sentence(comment: str) -> str:
    return f"{comment[:1].upper()}{comment[1:].rstrip('.')}." if comment else ""


def _fields(kind: type[Any]) -> list[tuple[str, str, Any]]:
    """Names, also as a file has them, and defaults."""
    if issubclass(kind, BaseModel):
        return [(name, field.alias or name, _of_field(field)) for name, field in kind.model_fields.items()]
    return [(field.name, field.name, field.default) for field in dataclasses.fields(kind)]


def _of_field(field: FieldInfo) -> Any:
    return PydanticUndefined if field.default_factory else field.default


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if value is PydanticUndefined or value is dataclasses.MISSING or isinstance(value, BaseModel):
        return ""
    return f"`{written(str(value) if isinstance(value, Path) else value)}`"


def _table_in(hint: Any) -> type[BaseModel] | None:
    """The model in a type, if it has one."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    return next((inner for each in typing.get_args(hint) if (inner := _table_in(each))), None)


def _bounds(metadata: tuple[Any, ...]) -> Iterator[str]:
    """What a number must be."""
    for each in metadata:
        for one in each.metadata if isinstance(each, FieldInfo) else ():
            if type(one) in BOUNDS:
                (field,) = dataclasses.fields(one)
                yield f"{BOUNDS[type(one)]} {getattr(one, field.name)}"


def _remarks(source: str) -> tuple[dict[int, str], set[int]]:
    """Comments by line, and the lines that have nothing else."""
    remarks, alone = dict[int, str](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            remarks[token.start[0]] = token.string.removeprefix("#").strip()
            if not token.line[: token.start[1]].strip():
                alone.add(token.start[0])
    return remarks, alone


def _above(line: int, remarks: dict[int, str], alone: set[int]) -> Iterator[str]:
    first = line
    while first - 1 in alone:
        first -= 1
    yield from (remarks[number] for number in range(first, line))


def main() -> int:
    """Write it, or say whether it is current."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE}")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not current: make reference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
