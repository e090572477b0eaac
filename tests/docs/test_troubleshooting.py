"""docs/troubleshooting.md: every message that it explains is one that the program can print."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
OURS, OTHERS = PAGE.split("## Said by others")
GAP = "\0"  # where a program puts a value


def messages(text: str) -> list[str]:
    """The first cell of each row: messages between backticks, `...` where a value stands."""
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [message for cell in cells for message in re.findall(r"``? ?(.+?) ?`?`(?=,|$)", cell.removeprefix("| "))]


@cache
def printed() -> str:
    """Every string of the program, one a line; values are gaps."""
    folders = ("edgefl", "coordinator", "device_agent", "gateway")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(text for path in files for text in strings(ast.parse(path.read_text(encoding="utf-8"))))


def strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield "".join(str(part) for part in parts).replace("\n", " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace("\n", " ")


def is_printed(message: str) -> bool:
    pieces = [re.escape(piece.strip(" '\"")) for piece in message.split("...")]
    return re.search("[^\n]*".join(piece for piece in pieces if piece), printed()) is not None


@pytest.mark.parametrize("message", messages(OURS))
def test_the_program_can_say_it(message: str) -> None:
    assert re.search(r"[a-z]{4}", message), "too short to be looked for"
    assert is_printed(message)


def test_there_are_enough_of_them_and_an_old_one_would_be_noticed() -> None:
    assert len(messages(OURS)) > 40
    assert not is_printed("the flux capacitor is empty")


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    assert not [row for row in rows if len(row) != 3 or not all(cell.strip() for cell in row)]
