"""A whole run without a network, in the driver that its run file asks for: the plain loop, or an emulated fleet."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import time
from typing import TypeAlias

from edgefl.config.schema import RunFile
from edgefl.data.dataset import Dataset
from edgefl.data.split import Split
from edgefl.errors import ConfigError
from edgefl.events import Resumed, Tell
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState, Watch
from edgefl.simulation.engines import engine
from edgefl.simulation.loop import simulate
from edgefl.simulation.loop_memory import Keeper, LoopMemory, forget

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
    keeper: Keeper | None = None,
) -> RunState:
    """Play the run to its end; `prepare` may hand out a job that is there already, `watch` sees every state.

    A `keeper` knows where the run stood when it was interrupted, if it was, and is shown where it stands.
    """
    job, held = prepare(run, root)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    if keeper is None:
        return _driven(job, devices, tell, watch, emulated=emulated, workers=workers)

    def seen(run_state: RunState) -> None:
        keeper.watch(run_state)
        watch(run_state)

    since = keeper.recall(job)
    if since:
        tell(Resumed(since.run_state.round + 1, at=time()))
    run_state = _driven(job, devices, tell, seen, emulated=emulated, workers=workers, keeper=keeper, since=since)
    keeper.end(job, run_state)
    return run_state


def on_virtual_clock(run: RunFile, *, emulated: bool = False) -> bool:
    """Whether the run is that of an emulated fleet: by its file, or because somebody wants it to be."""
    return emulated or bool(run.fleet and run.fleet.takes_time)


def _driven(
    job: Job,
    devices: Mapping[str, Dataset],
    tell: Tell,
    watch: Watch,
    *,
    emulated: bool,
    workers: int | None,
    keeper: Keeper | None = None,
    since: LoopMemory | None = None,
) -> RunState:
    with engine(job, devices, workers) as training:
        if on_virtual_clock(job.run, emulated=emulated):
            from edgefl.simulation.emulator import emulate  # noqa: PLC0415 - the services come with it

            with keeper.journalled(training) if keeper else nullcontext(training) as trained:
                return emulate(job, devices, tell, engine=trained, watch=watch)
        if job.run.budget.needs_a_clock:
            raise ConfigError("[budget] seconds and joules need a virtual clock: give [fleet] profiles, or --emulate")
        keep = partial(keeper.offer, job) if keeper else forget
        return simulate(job, devices, tell, engine=training, watch=watch, keep=keep, since=since)
