"""`edgefl rehearse`: find out what cannot work before any device is asked."""

import typer

from edgefl.cli.options import DataRoot, Log, RunPath, Sets


def rehearse(run: RunPath, set_: Sets = None, data_root: DataRoot = None, log: Log = "warning") -> None:
    """Play the first rounds without a device, through everything the run file names and with its own numbers."""
    from edgefl import job as jobs
    from edgefl import logs, wording
    from edgefl.config import RunFile
    from edgefl.config_reader import load
    from edgefl.rehearsal import known_devices, scale
    from edgefl.rehearsal import rehearse as play

    logs.set_up(log)
    wanted = load(RunFile, run, set_ or ())
    job = play(wanted, data_root)
    played = scale(job, known_devices(wanted))
    stages = " -> ".join(stage.name for stage in job.stages)
    typer.echo(
        f"{run}: works. {job.algorithm.name} on '{wanted.task.model}' ({job.model.layout.size:,} parameters),"
        f" {stages}, {job.up.name} up, {job.down.name} down"
    )
    less = f" of the {wanted.cohort} that the run asks: the model is large" if played.capped else ""
    typer.echo(f"it played {played.rounds} rounds of {played.answers} answers{less}")
    typer.echo(f"it {wording.evaluating(jobs.opening(job))}")
