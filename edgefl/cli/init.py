"""`edgefl init`: a run file and an agent file to start from."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from edgefl.base.errors import ConfigError

NAMES = ("run.toml", "agent.toml")


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a commented run.toml and agent.toml."""
    there = [name for name in NAMES if (folder / name).exists()]
    if there and not force:
        raise ConfigError(f"{folder / there[0]} is already there; --force overwrites it")
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        text = (files("edgefl.cli") / "templates" / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
        typer.echo(f"wrote {folder / name}")
    typer.echo(f"next: edgefl simulate {folder / 'run.toml'}")
