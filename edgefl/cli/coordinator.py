"""`edgefl coordinator`: the server's side of a run."""

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Forgetting, Insecure, Json, Log, RunPath, Sets, with_flags
from edgefl.cli.program import program

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from coordinator.durable.journal import Journal
    from coordinator.durable.resuming import RequestedRounds
    from edgefl.fleet.folder import FleetFolder
    from edgefl.job.config.schema import RunFile

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
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, even if a run was interrupted or has finished.")
    ] = False,
    unless_finished: Annotated[
        bool, typer.Option("--unless-finished", help="Exit code 0, not 3, if the run has finished before.")
    ] = False,
    page: Annotated[
        str | None,
        typer.Option(help="Where a browser can watch: a port, or host:port (127.0.0.1:8600).", show_default=False),
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve no page.")] = False,
    insecure: Insecure = False,
    log: Log = "warning",
) -> None:
    """Coordinate a run: wait for devices, open rounds, merge what they send, keep the model.

    The same command goes on with a run that was interrupted, whatever interrupted it. One that has finished is left
    alone (exit code 3).
    """
    from contextlib import nullcontext

    from coordinator.durable import journal
    from coordinator.durable.resuming import RequestedRounds
    from coordinator.start import opened
    from edgefl.base.errors import Finished
    from edgefl.job.config import origin
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.system import logs
    from edgefl.system.disk import FolderDisk

    logs.set_up(log)
    sets = with_flags(set_, forgetting=forgetting, page=page, no_page=no_page)
    run_file = load(RunFile, run, sets)
    stated = RequestedRounds.of(run, set_ or ())
    origins = origin.as_json(origin.entries(RunFile, run, sets))
    how = {"rehearse": rehearse, "fresh": fresh, "json": json, "insecure": insecure}
    goes_on = not fresh and journal.exists(FolderDisk(run_file.run.folder / run_file.run.name))
    try:
        with opened(run_file) if goes_on else nullcontext() as book:
            _coordinate(run_file, book, data_root, stated, origins, **how)
    except Finished as error:
        if not unless_finished:
            raise
        typer.echo(f"edgefl: {error}", err=True)


@app.command()
def extend(  # noqa: PLR0917 - options of a command
    run: Annotated[
        Path, typer.Argument(help="The run file, the run's folder, or its name in runs/.", show_default=False)
    ],
    rounds: Annotated[int, typer.Option(min=1, help="How many more.", show_default=False)],
    set_: Sets = None,
    data_root: DataRoot = None,
    json: Json = False,
    later: Annotated[
        bool, typer.Option("--later", help="Do not go on now: the next `coordinator start` does, e.g. of a service.")
    ] = False,
    insecure: Insecure = False,
    log: Log = "warning",
) -> None:
    """Give a run more rounds, and go on with it: one that has finished, or one that was interrupted.

    It ends with the model that it would have had with this number of rounds from the beginning.
    """
    from coordinator.durable.existing_run import begun
    from coordinator.durable.existing_run import extend as extend_run
    from coordinator.durable.resuming import RequestedRounds
    from coordinator.shell import known_runs
    from coordinator.shell.fleet_broker import located
    from coordinator.start import opened
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.system import logs
    from edgefl.system.locks import own

    logs.set_up(log)
    if run.is_file():
        run_file, stated = load(RunFile, run, set_ or ()), RequestedRounds.of(run, set_ or ())
    else:
        remedy = f"give the run file in place of the folder: edgefl coordinator extend run.toml --rounds {rounds}"
        run_file = begun(run if run.exists() else Path("runs") / run, set_ or (), remedy=remedy)
        stated = None
    run_file = located(run_file)
    folder = run_file.run.folder / run_file.run.name
    with own(known_runs.lock_of(folder), remedy="end that first; nothing is lost"):
        extended = extend_run(folder, run_file, rounds, stated=stated)
    typer.echo(
        f"edgefl: run '{extended.run.name}' has {extended.run.rounds} rounds now; its devices go on with it, but for"
        " those that ended with it (--once): start these again",
        err=True,
    )
    if not later:
        with opened(extended) as book:
            _coordinate(extended, book, data_root, stated, json=json, insecure=insecure)


def _coordinate(
    run_file: "RunFile",
    book: "Journal | None",
    data_root: Path | None,
    stated: "RequestedRounds | None",
    origins: str | None = None,
    *,
    rehearse: bool = False,
    fresh: bool = False,
    json: bool = False,
    insecure: bool = False,
) -> None:
    """Start, or go on with the run whose journal this is; a run that begins leaves nothing behind before its checks."""
    from contextlib import nullcontext, suppress

    from coordinator.durable import identity
    from coordinator.durable.answer_store import HELD
    from coordinator.shell import labels
    from coordinator.shell.broker_wait import check_broker, wait_for_broker
    from coordinator.shell.fleet_broker import fleet_of, located
    from coordinator.start import coordinate, opened
    from edgefl.sim.cautions import tell_cautions
    from edgefl.sim.torch_process import network_apart
    from edgefl.system.resident_memory import one_heap
    from edgefl.system.service_manager import ServiceManager
    from edgefl.watch.exporters import opening
    from edgefl.watch.view import choose
    from edgefl.wire import exposure
    from edgefl.wire.address import BrokerAway, parse

    one_heap(2 * HELD)  # the answers of a round, and what they came in; of several each keeps what it once held
    run_file = located(run_file)
    exposure.check(parse(run_file.broker.url), run_file.broker.tls, "broker", insecure=insecure)
    opening.check(run_file.export)
    labels.check(run_file)
    goes_on = book is not None
    if not goes_on:
        tell_cautions(run_file)
    view = choose(as_json=json)
    if (fleet := fleet_of(run_file)) and not json:
        tell_devices(fleet)
    rehearse = rehearse and not goes_on
    network = cache(partial(network_apart, run_file, data_root, rehearse=rehearse))
    manager = ServiceManager()

    def say(text: str) -> None:
        typer.echo(f"edgefl: {text}", err=True)
        manager.status(text)

    with manager.alive():
        manager.ready(f"run '{run_file.run.name}' starts")
        if not goes_on:  # else the broker was there once, and may come back later than we do
            with suppress(BrokerAway):  # a coordinator that is refused hears of it before the rehearsal
                check_broker(run_file)
            identity.check(run_file)
        if rehearse:
            with view.busy(f"rehearsing run '{run_file.run.name}' without devices (--no-rehearse leaves it out)"):
                network()
        if not goes_on:
            wait_for_broker(run_file, say)
        with nullcontext(book) if book else opened(run_file, fresh=fresh) as book_open:
            results = coordinate(
                run_file,
                book_open,
                data_root,
                view,
                stated=stated,
                origins=origins,
                network=network,
                manager=manager,
            )
    if not json:
        for what, path in results.files.items():
            typer.echo(f"{what}: {path}")


def tell_devices(fleet: "FleetFolder") -> None:
    """Say how devices come to the fleet that no run has seen yet."""
    from edgefl.fleet import last_seen, members

    names = list(members.read(fleet.members).active())
    if not names:
        typer.echo(f"fleet '{fleet.name}' has no members yet:  {program()} fleet add pi-01", err=True)
        return
    seen = last_seen.read(fleet.seen)
    if new := [name for name in names if name not in seen]:
        where = "each device" if len(new) == len(names) else f"{', '.join(new[:5])}{' and others' * (len(new) > 5)}"
        typer.echo(f"on {where}, with its kit:  edgefl agent enrol {new[0]}.kit", err=True)


@app.command()
def key(run: RunPath, set_: Sets = None) -> None:
    """Say which key signs this fleet's models; agents that have it as agent.coordinator trust no other.

    The key is made if there is none yet.
    """
    from coordinator.durable import identity
    from coordinator.shell.fleet_broker import located
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile

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
    """Forget a device's key: the next device with its name is let in. For a device that was installed anew."""
    from coordinator.durable import identity
    from coordinator.shell.device_keys import DeviceKeys
    from coordinator.shell.fleet_broker import fleet_of, located
    from edgefl.base.errors import ConfigError
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile

    run_file = located(load(RunFile, run, set_ or ()))
    if fleet_of(run_file):
        raise ConfigError(f"the fleet knows its members: `edgefl fleet add {device} --replace` gives it new keys")
    if run_file.devices:
        raise ConfigError(f"{run} lists the keys of its devices: set devices.{device} to the new one, or take it out")
    path = identity.devices_path(run_file)
    if not DeviceKeys(path).forget(device):
        raise ConfigError(f"{path} has no key of a device '{device}'")
    typer.echo(f"edgefl: forgot the key of '{device}'", err=True)
