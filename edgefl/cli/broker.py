"""`edgefl broker`: the broker of a fleet, or one for the bench."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefl.cli.options import FleetName, Insecure, Log
from edgefl.cli.program import program, shown

app = typer.Typer(no_args_is_help=True, help="A broker.")


@app.callback()
def group() -> None:
    """A broker."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    fleet: FleetName = "default",
    site: Annotated[
        Path | None,
        typer.Option(help="NAME.site, as `edgefl fleet site` wrote it: the broker of a site, with its bridge."),
    ] = None,
    insecure: Insecure = False,
    port: Annotated[
        int | None, typer.Option(help="Without a fleet: its port; 0 takes any free one.", show_default="1883")
    ] = None,
    bind: Annotated[
        str | None, typer.Option(help="Without a fleet: another address needs --insecure.", show_default="127.0.0.1")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Without a fleet: one user for all; its password is EDGEFL_MQTT_PASSWORD.")
    ] = None,
    prefer: Annotated[
        Literal["auto", "mosquitto", "iotcore"], typer.Option(help="Without a fleet: which broker to run.")
    ] = "auto",
    log: Log = "warning",
) -> None:
    """Run the secured broker of a fleet until Ctrl-C; where there is no fleet, an open one on loopback."""
    from edgefl.fleet.folder import FleetFolder
    from edgefl.system import logs

    logs.set_up(log)
    if site is not None:
        _not_for_a_fleet(fleet, {"--port": port, "--bind": bind, "--user": user})
        _site(site)
    elif FleetFolder(fleet).exists() and not insecure:
        _not_for_a_fleet(fleet, {"--port": port, "--bind": bind, "--user": user})
        _secured(fleet)
    else:
        _plain(1883 if port is None else port, bind or "127.0.0.1", user, prefer, insecure=insecure)


def _not_for_a_fleet(fleet: str, options: Mapping[str, object]) -> None:
    from edgefl.base.errors import ConfigError

    given = [option for option, value in options.items() if value is not None]
    if given:
        raise ConfigError(
            f"{' and '.join(given)}: the broker of fleet '{fleet}' listens where `edgefl fleet init` said"
            " (--host, --port); leave this out, or say --insecure for an open broker beside the fleet's"
        )


def _site(path: Path) -> None:
    from edgefl.fleet import site_broker

    def ready(site: site_broker.SiteBroker) -> None:
        where = site.settings.broker
        typer.echo(f"the broker of site '{site.file.name}' listens on {where} for its members only; Ctrl-C ends it")
        typer.echo(f"its bridge goes to {site.file.centre}; devices: {', '.join(site.members.devices) or 'none yet'}")

    site_broker.serve(path, ready)


def _secured(fleet: str) -> None:
    from edgefl.fleet import broker
    from edgefl.fleet.administration import FleetAdministration

    opened = FleetAdministration(fleet)

    def ready() -> None:
        settings = opened.settings
        run = shown(Path(settings.trial)) if settings.trial else "run.toml"
        typer.echo(
            f"the broker of fleet '{fleet}' listens on {settings.broker} for members only (TLS 1.3); Ctrl-C ends it"
        )
        typer.echo(f"next, in another terminal:  {program()} coordinator start {run}")

    broker.serve(opened, ready)


def _plain(
    port: int, bind: str, user: str | None, prefer: Literal["auto", "mosquitto", "iotcore"], *, insecure: bool
) -> None:
    import os
    from queue import SimpleQueue

    from edgefl.base.errors import ConfigError
    from edgefl.wire import broker
    from edgefl.wire.address import PASSWORD, is_loopback
    from edgefl.wire.exposure import warn

    users = {}
    if user is not None:
        if not os.environ.get(PASSWORD):
            raise ConfigError(f"--user {user}: put its password into the environment as {PASSWORD}")
        users[user] = os.environ[PASSWORD]
    ended: SimpleQueue[int] = SimpleQueue()  # an Event set by a handler can wait for itself for ever
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: ended.put(number))
    with broker.start(port, bind=bind, prefer=prefer, users=users, insecure=insecure) as running:
        if not is_loopback(bind):
            who = f"the user '{user}'" if user else "every machine"
            warn(f"at {bind} {who} may read and forge what any device says, and nothing is encrypted")
        typer.echo(f"{running.kind} listens on {running.address}; Ctrl-C ends it")
        ended.get()
