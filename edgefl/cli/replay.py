"""`edgefl replay`: what happened in a run, or to one device."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from edgefl.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from edgefl.config.schema import RunFile
    from edgefl.data.split import Split
    from edgefl.run.job import Job

Prepared: TypeAlias = "tuple[Job, Split]"


def replay(  # noqa: PLR0917 - the options of the command
    run: Annotated[Path, typer.Argument(help="The run's folder, or its journal.", show_default=False)],
    device: Annotated[str | None, typer.Option(help="Only what concerns this device.")] = None,
    round: Annotated[int | None, typer.Option(help="Only what concerns this round.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train once more in the order in which answers were merged: the same model?")
    ] = False,
    data_root: DataRoot = None,
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
    if again:
        typer.echo(trained_again(run.parent if run.is_file() else run, data_root))
        return
    told = False
    for line in lines(disk, device, round, as_json=json):
        typer.echo(line)
        told = True
    if not told:
        whom = "this run" if device is None else f"device '{printable(device)}'"
        when = "" if round is None else f" in round {round}"
        typer.echo(f"edgefl: nothing is told of {whom}{when}", err=True)


def trained_again(folder: Path, root: Path | None, prepare: "Callable[[RunFile], Prepared] | None" = None) -> str:
    """That the model follows from the order of answers, in one line; a RunError if it does not."""
    from coordinator.journal import Journal
    from coordinator.settling import begun
    from edgefl.errors import ConfigError, RunError
    from edgefl.events import Done
    from edgefl.run import job as jobs
    from edgefl.simulation.answer_order import recorded
    from edgefl.simulation.loop import simulate
    from edgefl.system.disk import FolderDisk

    run_file = begun(folder.resolve())
    if not run_file.buffered:
        raise ConfigError(
            f"{folder}: rounds that wait need no order of answers: `edgefl simulate` makes the same model"
        )
    if run_file.task.partition is None:
        raise ConfigError(
            f"{folder}: its devices brought their own data; only a trial (task.partition) can be trained again"
        )
    story = list(Journal(FolderDisk(folder), reading=True).story())
    ends = [fact for fact in story if isinstance(fact, Done)]
    if not ends:
        raise ConfigError(f"{folder}: the run has not finished; let it, and ask again")
    job, held = prepare(run_file) if prepare else jobs.prepare(run_file, root)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    sha256 = simulate(job, devices, order={course.round: course for course in recorded(story)}).sha256()
    if sha256 != ends[-1].model_sha256:
        raise RunError(
            f"{folder}: trained again in the order of its answers the model is {sha256}, not {ends[-1].model_sha256}"
        )
    return f"trained again, {ends[-1].rounds} rounds in the order of their answers: the same model, {sha256}"
