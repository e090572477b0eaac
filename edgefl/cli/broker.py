"""`edgefl broker`: a broker for the bench or a small site."""

import signal
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=True, help="A broker without set-up.")


@app.callback()
def group() -> None:
    """A broker without set-up."""


@app.command()
def start(
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 1883,
    bind: Annotated[str, typer.Option(help="An address other than loopback needs --user.")] = "127.0.0.1",
    user: Annotated[str | None, typer.Option(help="Ask for this name; the password is EDGEFL_MQTT_PASSWORD.")] = None,
    prefer: Annotated[Literal["auto", "mosquitto", "iotcore"], typer.Option(help="Which broker to run.")] = "auto",
) -> None:
    """Run Mosquitto (or the iotcore wheel) until Ctrl-C."""
    import os

    from edgefl.errors import ConfigError
    from edgefl.protocol import broker
    from edgefl.protocol.address import PASSWORD

    users = {}
    if user is not None:
        if not os.environ.get(PASSWORD):
            raise ConfigError(f"--user {user}: put its password into the environment as {PASSWORD}")
        users[user] = os.environ[PASSWORD]
    with broker.start(port, bind=bind, prefer=prefer, users=users) as running:
        typer.echo(f"{running.kind} listens on {running.address}; Ctrl-C ends it")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
