"""A whole run without a network, in the driver that its run file asks for: the plain loop, or an emulated fleet."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import time
from typing import TypeAlias

from edgefl.base.errors import ConfigError, Diverged
from edgefl.base.events import Fact, Resumed, Tell
from edgefl.base.vector import State
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState, Watch
from edgefl.learn.contract import is_personal
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.split import Split
from edgefl.sim.early_end import EarlyEnd
from edgefl.sim.engines import engine
from edgefl.sim.loop import simulate
from edgefl.sim.loop_memory import Ended, LoopMemory, LoopStorage, forget, unasked
from edgefl.sim.own_models import KeepOwn, own_models

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
    storage: LoopStorage | None = None,
    keep_own: KeepOwn | None = None,
) -> RunState:
    """Play the run to its end; `prepare` may hand out a job that is there already, `watch` sees every state.

    `storage` knows where the run stood when it was interrupted, if it was, and is shown where it stands; `keep_own` is
    given the devices' own models of a personalised run, however it ends. Learning that diverges is a result: the run
    ends with its last finite model, and `Done.stopped` says so.
    """
    job, held = prepare(run, root)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    since = storage.recall(job) if storage else None
    if since:
        tell(Resumed(since.run_state.round + 1, at=time()))
    early, last = EarlyEnd(job, since), list[RunState]()

    def heard(fact: Fact) -> None:
        early.add(fact)
        tell(fact)

    def seen(run_state: RunState) -> None:
        last[:] = [run_state]
        if storage:
            storage.watch(run_state)
        watch(run_state)

    def ended(states: Callable[[str], State], names: Iterable[str]) -> None:
        if keep_own and last:
            keep_own(own_models(job, last[0], states, names))

    asked = ended if keep_own and is_personal(job.algorithm) else unasked
    try:
        run_state = _driven(
            job, devices, heard, seen, emulated=emulated, workers=workers, storage=storage, since=since, ended=asked
        )
    except Diverged as error:
        if not last:
            raise  # the model that it should begin with is none
        run_state, done = early.diverged(last[0], error)
        tell(done)
    if storage:
        storage.end(job, run_state)
    return run_state


def on_virtual_clock(run: RunFile, *, emulated: bool = False) -> bool:
    """Return whether the run is that of an emulated fleet: by its file, or because the caller says so."""
    return emulated or bool(run.fleet and run.fleet.takes_time)


def _driven(
    job: Job,
    devices: Mapping[str, Dataset],
    tell: Tell,
    watch: Watch,
    *,
    emulated: bool,
    workers: int | None,
    storage: LoopStorage | None = None,
    since: LoopMemory | None = None,
    ended: Ended = unasked,
) -> RunState:
    with engine(job, devices, workers) as training:
        if on_virtual_clock(job.run, emulated=emulated):
            from edgefl.sim.emulator import emulate  # noqa: PLC0415 - the services come with it

            with storage.journalled(training) if storage else nullcontext(training) as trained:
                return emulate(job, devices, tell, engine=trained, watch=watch, ended=ended)
        if job.run.budget.needs_a_clock:
            raise ConfigError("[budget] seconds and joules need a virtual clock: give [fleet] profiles, or --emulate")
        keep = partial(storage.offer, job) if storage else forget
        return simulate(job, devices, tell, engine=training, watch=watch, keep=keep, since=since, ended=ended)
