"""`edgefl broker`: a broker for the bench or a small site."""

import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=True, help="A broker without set-up.")


@app.callback()
def group() -> None:
    """A broker without set-up."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 1883,
    bind: Annotated[str, typer.Option(help="An address other than loopback needs --devices.")] = "127.0.0.1",
    devices: Annotated[
        str | None, typer.Option(help="pi-01,pi-02,...: each gets an account that reads and writes its own only.")
    ] = None,
    accounts: Annotated[
        Path | None, typer.Option(help="With --devices: the folder of their files.", show_default="~/.local/state/...")
    ] = None,
    fleet: Annotated[str, typer.Option(help="With --devices: whose coordinator's key they are given.")] = "default",
    user: Annotated[
        str | None, typer.Option(help="One user for everybody, on loopback; its password is EDGEFL_MQTT_PASSWORD.")
    ] = None,
    prefer: Annotated[Literal["auto", "mosquitto", "iotcore"], typer.Option(help="Which broker to run.")] = "auto",
) -> None:
    """Run Mosquitto (or the iotcore wheel, on loopback) until Ctrl-C."""
    import os

    from coordinator import identity
    from edgefl.errors import ConfigError
    from edgefl.protocol import accounts as files
    from edgefl.protocol import broker
    from edgefl.protocol.acl import COORDINATOR
    from edgefl.protocol.address import PASSWORD

    users, folder = {}, (accounts or identity.state_folder() / "accounts").absolute()
    if user is not None:
        if devices is not None:
            raise ConfigError("--user is one account for everybody, --devices one for each: give one of them")
        if not os.environ.get(PASSWORD):
            raise ConfigError(f"--user {user}: put its password into the environment as {PASSWORD}")
        users[user] = os.environ[PASSWORD]
    elif devices is not None:
        users = files.passwords(folder, files.names(devices))
    with broker.start(port, bind=bind, prefer=prefer, users=users, apart=devices is not None) as running:
        if devices is not None:
            files.write(folder, users, running.address, identity.opened(identity.of_fleet(fleet)).key)
            typer.echo("accounts (a device gets its own file and no other):")
            for name in users:
                typer.echo(f"  {files.path(folder, name)}")
            typer.echo(f"in the coordinator's terminal:  set -a; . {files.path(folder, COORDINATOR)}; set +a")
            typer.echo("on a device, with its file:     set -a; . ./NAME.env; set +a")
        typer.echo(f"{running.kind} listens on {running.address}; Ctrl-C ends it")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
