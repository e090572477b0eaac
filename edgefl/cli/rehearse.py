"""`edgefl rehearse`: find out what cannot work before any device is asked."""

import typer

from edgefl.cli.options import DataRoot, Log, RunPath, Sets


def rehearse(run: RunPath, set_: Sets = None, data_root: DataRoot = None, log: Log = "warning") -> None:
    """Play the first rounds without a device, through everything the run file names and with its own numbers."""
    from coordinator.shell import labels
    from coordinator.shell.fleet_broker import located
    from edgefl.fleet.folder import FleetFolder
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.job.run import reporting
    from edgefl.learn.evaluation import wording
    from edgefl.sim.cautions import tell_cautions
    from edgefl.sim.rehearsal import known_devices, scale
    from edgefl.sim.rehearsal import rehearse as play
    from edgefl.system import logs

    logs.set_up(log)
    run_file = load(RunFile, run, set_ or ())
    labels.check(located(run_file) if FleetFolder(run_file.broker.fleet).exists() else run_file)
    tell_cautions(run_file)
    job = play(run_file, data_root)
    played = scale(job, known_devices(run_file))
    stages = " -> ".join(stage.name for stage in job.stages)
    typer.echo(
        f"{run}: works. {job.algorithm.name} on '{run_file.task.model}' ({job.model.layout.size:,} parameters),"
        f" {stages}, {job.up.name} up, {job.down.name} down"
    )
    less = f" of the {run_file.cohort} that the run asks: the model is large" if played.capped else ""
    typer.echo(f"it played {played.rounds} rounds of {played.answers} answers{less}")
    typer.echo(f"it {wording.evaluating(reporting.opening(job))}")
