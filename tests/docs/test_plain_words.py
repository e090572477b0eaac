"""Docstrings, comments and pages say who does what: words that make a reader guess are refused."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("edgefl", "coordinator", "device_agent", "gateway", "tools")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[!.]*/*.md")]
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|anybody|so many)\b", re.IGNORECASE)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)  # quoted: output of programs, names such as the user `nobody`


def riddles(text: str) -> list[str]:
    """Return the forbidden words outside of quoted code."""
    return RIDDLES.findall(CODE.sub("", text))


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_have_no_riddles(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {' '.join(text.split())[:150]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in prose(path.read_text(encoding="utf-8"))
        if riddles(text)
    ]
    assert not found, "say who does what (a device, the coordinator, an operator, an attacker):\n" + "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_no_riddles(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if riddles(line)] == []


@pytest.mark.parametrize("text", ["Nobody asks.", "whoever comes", "at most so many steps"])
def test_a_riddle_is_seen(text: str) -> None:
    assert riddles(text)


def test_a_user_of_that_name_is_none() -> None:
    assert not riddles("the broker runs as `nobody`")
