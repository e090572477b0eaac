"""`edgefl config`: what a file comes to, after defaults, environment and flags."""

import json as js
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.options import Json, Sets
from edgefl.config.toml_text import Way, name, written

if TYPE_CHECKING:  # the command imports it when it runs: --help is instant
    from edgefl.config.origin import Entry

app = typer.Typer(no_args_is_help=True, help="What a file comes to.")

COLUMN, WIDTH = 40, 80  # where origins begin, and where a plain terminal ends


@app.callback()
def group() -> None:
    """What a file comes to."""


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A run file or an agent file (TOML).", show_default=False)],
    set_: Sets = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say who set each key, and over whom.")] = False,
    agent: Annotated[bool, typer.Option("--agent", help="It is an agent file, whatever it looks like.")] = False,
    json: Json = False,
) -> None:
    """Show the whole file that is in force: defaults, the file, EDGEFL_ variables, --set; the last one wins.

    What it prints is a run file (or an agent file) again.
    """
    from edgefl.config.origin import entries, kind_of, strays
    from edgefl.config.reader import read_toml
    from edgefl.config.schema import AgentFile

    shown = entries(AgentFile if agent else kind_of(read_toml(file)), file, set_ or ())
    if json:
        for line in _as_json(shown) if origin else [js.dumps(_tree(shown))]:
            typer.echo(line)
    else:
        typer.echo(_dim(f"# {file} as it is in force."))
        if origin:
            typer.echo(_dim("# Strongest first: --set, EDGEFL_ variables, the file, the defaults."))
        for line in _as_toml(shown, origin=origin):
            typer.echo(line)
    for line in strays():
        typer.echo(f"edgefl: {line}", err=True)


def _as_json(entries: "Sequence[Entry]") -> list[str]:
    return [
        js.dumps(
            {
                "key": entry.key,
                "value": entry.value,
                "origin": entry.origin,
                "over": [{"origin": who, "value": value} for who, value in entry.over],
            }
        )
        for entry in entries
    ]


def _tree(entries: "Sequence[Entry]") -> Any:  # Any: tables in tables
    """The nested table again."""
    root: dict[str, Any] = {}
    for entry in entries:
        here: Any = root
        for part, following in zip(entry.way, entry.way[1:], strict=False):
            fresh: Any = [] if isinstance(following, int) else {}
            if isinstance(part, int):
                if part == len(here):
                    here.append(fresh)
                here = here[part]
            else:
                here = here.setdefault(part, fresh)
        here[entry.way[-1]] = entry.value
    return root


def _as_toml(entries: "Sequence[Entry]", at: Way = (), *, origin: bool) -> list[str]:
    """The lines of a TOML file; with `origin`, each with a comment that says where it comes from."""
    lines = []
    own = [entry for entry in entries if entry.way[:-1] == at]
    if at and own:
        lines += ["", _header(at)]
    for entry in own:  # before the tables inside, or TOML would read them as theirs
        lines += _line(entry, origin=origin) if at else ["", _dim(f"# [{entry.key}] is not there")]
    for way in dict.fromkeys(entry.way[: len(at) + 1] for entry in entries if len(entry.way) > len(at) + 1):
        lines += _as_toml([entry for entry in entries if entry.way[: len(way)] == way], way, origin=origin)
    return lines


def _header(at: Way) -> str:
    dotted = ".".join(name(part) for part in at if isinstance(part, str))
    return typer.style(f"[[{dotted}]]" if isinstance(at[-1], int) else f"[{dotted}]", bold=True)


def _line(entry: "Entry", *, origin: bool) -> list[str]:
    from edgefl.config.origin import DEFAULT

    key = name(str(entry.way[-1]))
    text = f"# {key} is not set" if entry.value is None else f"{key} = {written(entry.value)}"
    quiet = entry.origin.startswith(DEFAULT) and not entry.over
    if not origin or (entry.value is None and quiet):
        return [_dim(text) if entry.value is None else text]
    commented = f"{text:<{COLUMN - 2}}  # {entry.origin}"
    over = [f"#   instead of {written(value)} ({who})" for who, value in entry.over]
    placed = [" " * max(4, min(COLUMN, WIDTH - len(line))) + line for line in over]
    return [_dim(commented) if quiet else commented, *(typer.style(line, fg=typer.colors.YELLOW) for line in placed)]


def _dim(text: str) -> str:
    return typer.style(text, dim=True)
