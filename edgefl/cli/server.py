"""`edgefl server`: the service of a fleet, between runs and for years."""

from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import Log

app = typer.Typer(no_args_is_help=True, help="The service of a fleet: presence, certificates, a queue of runs.")


@app.callback()
def group() -> None:
    """The service of a fleet: presence, certificates, a queue of runs."""


@app.command()
def start(
    file: Annotated[
        Path | None, typer.Argument(help="The server's file (TOML), if it has one.", show_default=False)
    ] = None,
    fleet: Annotated[
        list[str] | None, typer.Option("--fleet", help="A fleet that it serves; may be repeated (default).")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: --set server.at_once=4", show_default=False)
    ] = None,
    log: Log = "info",
) -> None:
    """Serve fleets until Ctrl-C: their brokers, their devices, and the runs that are submitted.

    Killed at any moment, the same command goes on: runs that were at work go on with their round.
    """
    from edgefl.job.config.reader import load, parse
    from edgefl.server.server_file import ServerFile
    from edgefl.server.start import Host, serve
    from edgefl.system import logs

    logs.set_up(log)
    sets = [*(set_ or ()), *([f"server.fleets={fleet!r}".replace("'", '"')] if fleet else [])]
    settings = load(ServerFile, file, sets) if file else parse(ServerFile, {}, "edgefl server start", sets)

    def ready(host: Host) -> None:
        for name in host.file.server.fleets:
            typer.echo(f"the server of fleet '{name}' is at work; Ctrl-C ends it")

    serve(settings, ready)
