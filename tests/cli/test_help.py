"""Help texts show what they say: a [section] of a file is not taken for markup."""

import re
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from edgefl.cli.app import app


def commands(group: object, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, command in getattr(group, "commands", {}).items():
        yield (*words, name), command
        yield from commands(command, (*words, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_brackets_in_a_help_text_are_shown(words: tuple[str, ...]) -> None:
    command = ALL[words]
    texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
    sections = {section for text in texts for section in re.findall(r"\[+[a-z_.]+\]+", text)}
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert not {section for section in sections if section not in shown}


def test_there_are_such_texts() -> None:
    assert "[fleet]" in (ALL["simulate",].help or "")


@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_no_help_text_shows_an_emoji(words: tuple[str, ...]) -> None:
    """What stands between two colons may be the name of one: `package.module:factory: a ...`."""
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    assert not re.findall("[\u2600-\u27bf\U0001f000-\U0001faff]", shown)
