"""What the guides tell people to type: every command is one that the program knows, every file one that it can read."""

import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import typer
from guides import PAGES, ROOT, blocks, typed

from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.gateway import GatewayFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.server.server_file import ServerFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What a page shows of a program of one's own is run by the test that is named here.
RUN_ELSEWHERE = {
    "extending.md": "test_extending.py",
    "algorithms.md": "test_extending.py",
    "tutorial.md": "test_tutorial.py",
    "models.md": "test_lora.py",
}
LEAST = {"rounds": {"cohort": 4}}  # what a whole run file must have
COMMANDS: Any = typer.main.get_command(app)  # Any: click, or what newer versions of typer have in its place


def mentioned(page: Path) -> list[str]:
    """Commands inside the text, between backticks."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [one.replace("\n", " ") for one in re.findall(r"`edgefl ([a-z][^`]*)`", text)]


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words mean, and what is left of them."""
    command, rest = COMMANDS, list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands and hasattr(command, "otherwise"):  # `edgefl backup FILE`
            rest.insert(0, command.otherwise)
        assert rest[0] in command.commands, f"there is no command {' '.join(words)}"
        command = command.commands[rest.pop(0)]
    return command, rest


def options(command: Any) -> set[str]:
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return names | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    for words in typed(page):
        assert not mistake(words), f"{page.name}: edgefl {' '.join(words)}: {mistake(words)}"


def mistake(words: list[str]) -> str:
    """What the parser has against these words, if anything; nothing is run."""
    command, rest = leaf(words)
    try:
        command.make_context(command.name, rest)
    except Exception as error:  # noqa: BLE001 - whichever class the parser has for mistakes
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_shell_blocks_where_they_are_looked_at(page: Path) -> None:
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert not [text for kind, text in fenced if kind != "sh" and re.search(r"^ *edgefl ", text, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_mentioned_exists_with_its_options(page: Path) -> None:
    for text in mentioned(page):
        command, _ = leaf(text.split())
        unknown = {word.partition("=")[0] for word in text.split() if re.match(r"--[a-z]", word)} - options(command)
        assert not unknown, f"{page.name}: `edgefl {text}`"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in RUN_ELSEWHERE], ids=lambda page: page.name)
def test_every_piece_of_a_file_is_one_that_the_program_reads(page: Path) -> None:
    for block in blocks(page, "toml"):
        readable(tomllib.loads(block), f"{page.name}: {block}")


def readable(table: dict[str, Any], where: str) -> None:
    """Whether these tables may stand in a run file, in an agent file, in a gateway's or in a server's."""
    kinds: tuple[type[RunFile | AgentFile | GatewayFile | ServerFile], ...] = RunFile, AgentFile
    kinds = (GatewayFile,) if "gateway" in table else kinds
    kinds = (ServerFile,) if {"server", "alerts"} & table.keys() else kinds
    mistakes = [found for kind in kinds if (found := refused(kind, table))]
    assert len(mistakes) < len(kinds), f"{where}: {mistakes}"


def refused(kind: type[RunFile | AgentFile | GatewayFile | ServerFile], table: dict[str, Any]) -> str:
    whole = deepcopy(LEAST) | table if kind is RunFile else table
    try:
        parse(kind, whole, "it", environment={})
    except ConfigError as error:
        return str(error)
    return ""


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        leaf(["coordinator", "begin"])
    assert "--tokens" in mistake(["fleet", "add", "pi-04", "--tokens"])


def test_whoever_runs_the_programs_of_a_page_reads_that_page() -> None:
    for page, test in RUN_ELSEWHERE.items():
        sources = [path for path in ROOT.glob(f"tests/**/{test}") if page in path.read_text(encoding="utf-8")]
        assert sources, f"{test} does not read {page}"
