"""`edgefl fleet`: many agents on this machine, each a process of its own."""

import signal
from typing import Annotated

import typer

from edgefl.cli.options import DataRoot, Log, RunPath, Sets

app = typer.Typer(no_args_is_help=True, help="Many agents on this machine.")


@app.callback()
def group() -> None:
    """Many agents on this machine."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    run: RunPath,
    devices: Annotated[int | None, typer.Option(help="How many; all parts of task.partition unless said.")] = None,
    broker: Annotated[str | None, typer.Option(help="Their broker; the run file's unless said.")] = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    log: Log = "warning",
) -> None:
    """Start real agent processes, one for each part of the run's partition, and wait until they end."""
    from coordinator import identity
    from edgefl.config.reader import load
    from edgefl.config.schema import RunFile
    from edgefl.protocol.address import on_the_command_line, parse
    from edgefl.run.local_fleet import Fleet
    from edgefl.system import logs

    logs.set_up(log)
    on_the_command_line("--broker", broker)
    run_file = load(RunFile, run, set_ or ())
    where, key = broker or run_file.broker.url, None
    if not parse(where).local and identity.path(run_file).exists():  # else each agent says what it lacks
        key = identity.signer(run_file).key
    fleet = Fleet.of(run_file, where, devices, data_root, key)
    signal.signal(signal.SIGTERM, lambda _s, _f: fleet.stop())
    with fleet:
        typer.echo(f"{len(fleet.children)} agents started; their logs are in {fleet.folder}")
        failed = fleet.wait()
    for name, last_words in failed.items():
        typer.echo(f"{name}: {last_words}", err=True)
    raise typer.Exit(1 if failed else 0)
