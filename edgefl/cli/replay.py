"""`edgefl replay`: what happened in a run, or to one device."""

from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import Json


def replay(
    run: Annotated[Path, typer.Argument(help="The run's folder, or its journal.", show_default=False)],
    device: Annotated[str | None, typer.Option(help="Only what concerns this device.")] = None,
    round: Annotated[int | None, typer.Option(help="Only what concerns this round.")] = None,
    json: Json = False,
) -> None:
    """Tell the story of a run, event by event."""
    from coordinator import journal
    from coordinator.story import lines
    from edgefl.errors import ConfigError
    from edgefl.printable import printable
    from edgefl.system.disk import FolderDisk

    disk = FolderDisk(run.parent if run.is_file() else run)
    if not journal.exists(disk):
        raise ConfigError(f"{disk.where(journal.NAME)}: no such journal; name the folder of a run, e.g. runs/demo")
    told = False
    for line in lines(disk, device, round, as_json=json):
        typer.echo(line)
        told = True
    if not told:
        whom = "this run" if device is None else f"device '{printable(device)}'"
        when = "" if round is None else f" in round {round}"
        typer.echo(f"edgefl: nothing is told of {whom}{when}", err=True)
