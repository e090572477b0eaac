"""What the guides tell people to type: their fenced blocks, and the commands in those."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *GUIDES, ROOT / "docs" / "results" / "codecs.md"]
PROGRAM = re.compile(r"(?:\S*/)?edgefl")  # also of a venv


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in this language."""
    fenced = re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return list(fenced)


def commands(block: str) -> Iterator[list[str]]:
    """The words of each command of a shell block, whichever program it calls."""
    for line in block.replace("\\\n", "").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            command = list(takewhile(lambda word: word != "&&", words))
            words = words[len(command) + 1 :]
            if command[:2] == ["sudo", "-u"]:  # sudo -u edgefl -H ...
                command = command[4:]
            yield command


def typed(page: Path) -> Iterator[list[str]]:
    """The words of each `edgefl` command in the shell blocks of a page."""
    for block in blocks(page, "sh"):
        yield from (command[1:] for command in commands(block) if PROGRAM.fullmatch(command[0]))
