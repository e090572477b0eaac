"""`edgefl gateway`: a site's devices answer as one."""

from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import Insecure, Log, Sets

app = typer.Typer(no_args_is_help=True, help="A site's devices answer as one.")


@app.callback()
def group() -> None:
    """A site's devices answer as one."""


@app.command()
def start(
    file: Annotated[
        Path, typer.Argument(help="The gateway's file (TOML), see docs/guides/gateway.md.", show_default=False)
    ],
    set_: Sets = None,
    insecure: Insecure = False,
    log: Log = "info",
) -> None:
    """Serve until Ctrl-C: ask the devices of a site for what the coordinator asks, and answer with their mean.

    The same command goes on after whatever ended it: answers of devices are on its disk before they have a receipt.
    """
    from gateway.start import run

    code, reason = run(file, set_ or (), insecure=insecure, level=log)
    if code:
        typer.echo(f"edgefl: {reason}", err=True)
    raise typer.Exit(code)
