"""`edgefl replay`: what happened in a run, or to one device."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from edgefl.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from edgefl.job.config.schema import RunFile
    from edgefl.job.run.job import Job
    from edgefl.learn.data.split import Split

Prepared: TypeAlias = "tuple[Job, Split]"


def replay(  # noqa: PLR0917 - the options of the command
    run: Annotated[Path, typer.Argument(help="The run's folder, or its journal.", show_default=False)],
    device: Annotated[str | None, typer.Option(help="Only what concerns this device.")] = None,
    round: Annotated[int | None, typer.Option(help="Only what concerns this round.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train once more in the order in which answers were merged: the same model?")
    ] = False,
    run_file: Annotated[
        Path | None,
        typer.Option("--run", help="With --again: the run file, where it names code of your own.", show_default=False),
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Tell the story of a run, event by event."""
    from coordinator.durable import journal
    from coordinator.durable.run_history import lines
    from edgefl.base.errors import ConfigError
    from edgefl.base.printable import printable
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.system.disk import FolderDisk

    disk = FolderDisk(run.parent if run.is_file() else run)
    if not journal.exists(disk):
        raise ConfigError(f"{disk.where(journal.NAME)}: no such journal; name the folder of a run, e.g. runs/demo")
    own = None if run_file is None else load(RunFile, run_file)  # from now on what it names may be run
    if again:
        typer.echo(trained_again(run.parent if run.is_file() else run, data_root, own=own))
        return
    told = False
    for line in lines(disk, device, round, as_json=json):
        typer.echo(line)
        told = True
    if not told:
        whom = "this run" if device is None else f"device '{printable(device)}'"
        when = "" if round is None else f" in round {round}"
        typer.echo(f"edgefl: the journal has nothing about {whom}{when}", err=True)


def trained_again(
    folder: Path,
    root: Path | None,
    prepare: "Callable[[RunFile], Prepared] | None" = None,
    own: "RunFile | None" = None,
) -> str:
    """That the model follows from the order of answers, in one line; a RunError if it does not."""
    from coordinator.durable.existing_run import begun
    from coordinator.durable.journal import Journal
    from edgefl.base.errors import ConfigError, RunError
    from edgefl.base.events import Done
    from edgefl.job.run import job as jobs
    from edgefl.sim.answer_order import recorded
    from edgefl.sim.loop import simulate
    from edgefl.system.disk import FolderDisk

    run_file = begun(folder.resolve(), remedy="name the run file with --run run.toml", own=own)
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
