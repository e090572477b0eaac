"""`edgefl coordinator`: the server's side of a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Forgetting, Insecure, Json, Log, RunPath, Sets, with_flags
from edgefl.cli.program import program

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.fleet.folder import FleetFolder

app = typer.Typer(no_args_is_help=True, help="The server's side of a run.")


@app.callback()
def group() -> None:
    """The server's side of a run."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    run: RunPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    forgetting: Forgetting = False,
    json: Json = False,
    rehearse: Annotated[
        bool, typer.Option(help="Play the first rounds without devices, to find what cannot work.")
    ] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run was interrupted.")] = False,
    unless_finished: Annotated[
        bool, typer.Option("--unless-finished", help="Do nothing if the run has finished: for a service.")
    ] = False,
    insecure: Insecure = False,
    log: Log = "warning",
) -> None:
    """Coordinate a run: wait for devices, open rounds, merge what they send, keep the model.

    The same command goes on with a run that was interrupted, whatever interrupted it.
    """
    from coordinator import identity
    from coordinator.fleet_broker import fleet_of, located
    from coordinator.start import check_broker, coordinate, finished
    from coordinator.view import choose
    from edgefl.config.reader import load
    from edgefl.config.schema import RunFile
    from edgefl.protocol import exposure
    from edgefl.protocol.address import parse
    from edgefl.simulation.rehearsal import rehearse_apart
    from edgefl.system import logs

    logs.set_up(log)
    run_file = load(RunFile, run, with_flags(set_, forgetting=forgetting))
    if unless_finished and not fresh and finished(run_file):
        typer.echo(f"edgefl: run '{run_file.run.name}' has finished; --fresh begins it anew", err=True)
        return
    run_file = located(run_file)
    exposure.check(parse(run_file.broker.url), run_file.broker.tls, "broker", insecure=insecure)
    view = choose(as_json=json)
    if (fleet := fleet_of(run_file)) and not json:
        _tell_devices(fleet)
    tried = finished(run_file) is False and not fresh  # and its broker may come back later than we do
    if not tried:
        check_broker(run_file)
        identity.check(run_file)
        if rehearse:
            with view.busy(f"rehearsing run '{run_file.run.name}' without devices (--no-rehearse leaves it out)"):
                rehearse_apart(run, set_ or (), data_root)
    results = coordinate(run_file, data_root, view, fresh=fresh)
    if not json:
        for what, path in results.files.items():
            typer.echo(f"{what}: {path}")


def _tell_devices(fleet: "FleetFolder") -> None:
    from edgefl.fleet import members

    names = list(members.read(fleet.members).active())
    if not names:
        typer.echo(f"fleet '{fleet.name}' has no members yet:  {program()} fleet add pi-01", err=True)
        return
    typer.echo(f"on each device, with its kit:  edgefl agent enrol {names[0]}.kit", err=True)


@app.command()
def key(run: RunPath, set_: Sets = None) -> None:
    """Say which key signs this fleet's models; agents that have it as agent.coordinator trust no other.

    The key is made if there is none yet.
    """
    from coordinator import identity
    from coordinator.fleet_broker import located
    from edgefl.config.reader import load
    from edgefl.config.schema import RunFile

    run_file = located(load(RunFile, run, set_ or ()))
    signer = identity.signer(run_file)
    typer.echo(f"edgefl: the private key is {identity.path(run_file)}", err=True)
    typer.echo(signer.key)


@app.command()
def forget(
    run: RunPath,
    device: Annotated[str, typer.Argument(help="The name of the device.", show_default=False)],
    set_: Sets = None,
) -> None:
    """Forget a device's key: whoever comes next with its name is let in. For a device that was installed anew."""
    from coordinator import identity
    from coordinator.device_keys import DeviceKeys
    from coordinator.fleet_broker import fleet_of, located
    from edgefl.config.reader import load
    from edgefl.config.schema import RunFile
    from edgefl.errors import ConfigError

    run_file = located(load(RunFile, run, set_ or ()))
    if fleet_of(run_file):
        raise ConfigError(f"the fleet knows its members: `edgefl fleet add {device} --replace` gives it new keys")
    if run_file.devices:
        raise ConfigError(f"{run} lists the keys of its devices: set devices.{device} to the new one, or take it out")
    path = identity.devices_path(run_file)
    if not DeviceKeys(path).forget(device):
        raise ConfigError(f"{path} has no key of a device '{device}'")
    typer.echo(f"edgefl: forgot the key of '{device}'", err=True)
