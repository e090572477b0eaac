"""`edgefl agent`: what runs on a device."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import DataRoot, Log, Sets

app = typer.Typer(no_args_is_help=True, help="What runs on a device.")

AgentPath = Annotated[Path, typer.Argument(help="The agent file (TOML); `edgefl init` writes one.", show_default=False)]


@app.callback()
def group() -> None:
    """What runs on a device."""


@app.command()
def start(
    agent: AgentPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    once: Annotated[bool, typer.Option("--once", help="End when the job is finished.")] = False,
    log: Log = "info",
) -> None:
    """Serve a fleet until Ctrl-C: fetch models, train on this device's data, send updates."""
    from device_agent.service import Agent, stopper
    from device_agent.start import open_agent
    from edgefl import logs
    from edgefl.config import AgentFile
    from edgefl.config_reader import load
    from edgefl.locks import own

    logs.set_up(log)
    file = load(AgentFile, agent, set_ or ())
    with own(file.agent.folder.expanduser() / file.agent.id):
        serving: Agent = open_agent(file, data_root, once=once)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stopper(serving))
        code, reason = serving.run()
    typer.echo(f"edgefl: {reason}", err=True)
    raise typer.Exit(code)
