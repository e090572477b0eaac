"""Docstrings, comments, messages and pages say who does what: words that make a reader guess are refused."""

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
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody|so many|what one has)\b", re.IGNORECASE)
# In messages also: say which program sent, trusted or refused what.
UNCLEAR = re.compile(
    r"\b(((is|are|was|were) (told|heard|believed))|tells? nothing|in hand|who (has|is|was))\b", re.IGNORECASE
)
SCREENS = sorted(path for path in (ROOT / "edgefl/watch/page/static").iterdir() if path.suffix in {".js", ".html"})
USER = "nobody"  # as which root has Mosquitto run: a name in the code, and no message
HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)  # what can have a docstring
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)  # quoted: output of programs, names such as the user `nobody`


def riddles(text: str) -> list[str]:
    """Return the forbidden words outside of quoted code."""
    return RIDDLES.findall(CODE.sub("", text))


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, HOLDERS):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def messages(source: str) -> Iterator[str]:
    """Yield the texts that a file can show to a user: its strings, but for docstrings."""
    tree = ast.parse(source)
    parts = [node.body[0] for node in ast.walk(tree) if isinstance(node, HOLDERS) and node.body]
    docstrings = {id(part.value) for part in parts if isinstance(part, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_have_no_riddles(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {' '.join(text.split())[:150]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in prose(path.read_text(encoding="utf-8"))
        if riddles(text)
    ]
    assert not found, "say who does what (a device, the coordinator, an operator, an attacker):\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_say_who_does_what(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[:150]!r}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in messages(path.read_text(encoding="utf-8"))
        if text != USER and (riddles(text) or UNCLEAR.search(CODE.sub("", text)))
    ]
    assert not found, "name the program, the value and the remedy:\n" + "\n".join(found)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_page_in_the_browser_has_no_riddles(screen: Path) -> None:
    assert [line for line in screen.read_text(encoding="utf-8").splitlines() if RIDDLES.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_no_riddles(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if riddles(line)] == []


@pytest.mark.parametrize("text", ["Nobody asks.", "whoever comes", "at most so many steps"])
def test_a_riddle_is_seen(text: str) -> None:
    assert riddles(text)


@pytest.mark.parametrize("text", ["it is heard again", "who was slow today", "the others were told"])
def test_an_unclear_message_is_seen(text: str) -> None:
    (message,) = messages(f"print({text!r})")
    assert UNCLEAR.search(message)


def test_a_user_of_that_name_is_none() -> None:
    assert not riddles("the broker runs as `nobody`")
