"""`edgefl config`: what a file comes to, after defaults, environment and flags."""

import json as js
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.options import Json, Sets

if TYPE_CHECKING:  # the command imports it when it runs: --help is instant
    from edgefl.job.config.listing import Kind
    from edgefl.job.config.origin import Entry

app = typer.Typer(no_args_is_help=True, help="What a file comes to.")


@app.callback()
def group() -> None:
    """What a file comes to."""


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A run file or an agent file (TOML).", show_default=False)],
    set_: Sets = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show what set each key, and which value it replaced.")
    ] = False,
    agent: Annotated[bool, typer.Option("--agent", help="It is an agent file, whatever it looks like.")] = False,
    json: Json = False,
) -> None:
    """Show the whole file that is in force: defaults, the file, EDGEFL_ variables, --set; the last one wins.

    What it prints is a run file (or an agent file) again.
    """
    from edgefl.job.config.agent_file import AgentFile
    from edgefl.job.config.listing import listing
    from edgefl.job.config.origin import entries, kind_of, strays
    from edgefl.job.config.reader import read_toml

    shown = entries(AgentFile if agent else kind_of(read_toml(file)), file, set_ or ())
    if json:
        for line in _as_json(shown) if origin else [js.dumps(_tree(shown))]:
            typer.echo(line)
    else:
        typer.echo(_dim(f"# {file} as it is in force."))
        if origin:
            typer.echo(_dim("# Strongest first: --set, EDGEFL_ variables, the file, the defaults."))
        for line, kind in listing(shown, origin=origin):
            typer.echo(_painted(line, kind))
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


def _painted(line: str, kind: "Kind") -> str:
    match kind:
        case "head":
            return typer.style(line, bold=True)
        case "over":
            return typer.style(line, fg=typer.colors.YELLOW)
        case "dim":
            return _dim(line)
        case _:
            return line


def _dim(text: str) -> str:
    return typer.style(text, dim=True)
