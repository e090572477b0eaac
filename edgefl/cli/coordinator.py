"""`edgefl coordinator`: the server's side of a run."""

from typing import Annotated

import typer

from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets

app = typer.Typer(no_args_is_help=True, help="The server's side of a run.")


@app.callback()
def group() -> None:
    """The server's side of a run."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    run: RunPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    json: Json = False,
    rehearse: Annotated[bool, typer.Option(help="Play two rounds with made-up devices first.")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run was interrupted.")] = False,
    log: Log = "warning",
) -> None:
    """Coordinate a run: wait for devices, open rounds, merge what they send, keep the model.

    The same command goes on with a run that was interrupted, whatever interrupted it.
    """
    from coordinator.start import check_broker, coordinate, unfinished
    from coordinator.view import choose
    from edgefl import logs
    from edgefl.config import RunFile
    from edgefl.config_reader import load
    from edgefl.rehearsal import rehearse_apart

    logs.set_up(log)
    wanted = load(RunFile, run, set_ or ())
    if fresh or not unfinished(wanted):  # else it has been tried, and its broker may come back later than we do
        check_broker(wanted)
        if rehearse:
            rehearse_apart(run, set_ or (), data_root)
    results = coordinate(wanted, data_root, choose(as_json=json), fresh=fresh)
    if not json:
        for what, path in results.files.items():
            typer.echo(f"{what}: {path}")
