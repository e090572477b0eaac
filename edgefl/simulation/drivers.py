"""A whole run without a network, in the driver that its run file asks for: the plain loop, or an emulated fleet."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from edgefl.config.schema import RunFile
from edgefl.data.split import Split
from edgefl.events import Tell
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState, Watch
from edgefl.simulation.engines import engine
from edgefl.simulation.loop import simulate

Prepare: TypeAlias = Callable[[RunFile, Path | None], tuple[Job, Split]]


def play(
    run: RunFile,
    root: Path | None,
    tell: Tell,
    *,
    emulated: bool = False,
    workers: int | None = None,
    prepare: Prepare = jobs.prepare,
    watch: Watch = jobs.unwatched,
) -> RunState:
    """Play the run to its end; `prepare` may hand out a job that is there already, `watch` sees every state."""
    job, held = prepare(run, root)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    with engine(job, devices, workers) as training:
        if emulated or (run.fleet and run.fleet.takes_time):
            from edgefl.simulation.emulator import emulate  # noqa: PLC0415 - the services come with it

            return emulate(job, devices, tell, engine=training, watch=watch)
        return simulate(job, devices, tell, engine=training, watch=watch)
