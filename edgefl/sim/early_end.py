"""The last word of a simulation that ends before its driver says it: a callback stopped it, or learning diverged."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from time import perf_counter, process_time, time
from typing import Any

from edgefl.base.errors import Diverged
from edgefl.base.events import DIVERGED, Described, Done, Evaluated, Fact, Round
from edgefl.job.run import job as jobs
from edgefl.job.run import reporting
from edgefl.job.run.job import Job, RunState
from edgefl.sim.loop_memory import LoopMemory


class StoppedByCallback(Exception):  # noqa: N818 - no error: a callback asked for the end
    """A callback ended the run."""


# Ends of a run whose last model, and what devices keep, are a result all the same.
EARLY = (StoppedByCallback, Diverged)


class EarlyEnd:
    """Adds up what was told of a run, as far as its last word needs it; only what its devices alone know is missing."""

    def __init__(self, job: Job, since: LoopMemory | None = None) -> None:
        nothing = {"total": {"up": 0, "down": 0}, "seconds": 0.0, "cpu_seconds": 0.0}
        plain: Mapping[str, Any] = since.plain if since else nothing
        self._job = job
        self._up, self._down = plain["total"]["up"], plain["total"]["down"]
        self._began, self._cpu = perf_counter() - plain["seconds"], process_time() - plain["cpu_seconds"]
        self._virtual: float | None = None
        self._joules: float | None = None

    def add(self, fact: Fact) -> None:
        """Add one more fact."""
        if isinstance(fact, Round | Described | Evaluated):
            self._up, self._down = self._up + fact.bytes_up, self._down + fact.bytes_down
        if isinstance(fact, Round) and fact.virtual_seconds is not None:
            self._virtual = (self._virtual or 0.0) + fact.virtual_seconds
        if isinstance(fact, Round) and fact.joules is not None:
            self._joules = (self._joules or 0.0) + fact.joules

    def done(self, run_state: RunState, stopped: str, why: str = "") -> Done:
        """Return the last word of a run that ends with this model."""
        done = reporting.summary(
            self._job,
            run_state,
            bytes_up=self._up,
            bytes_down=self._down,
            seconds=perf_counter() - self._began,
            cpu_seconds=process_time() - self._cpu,
            virtual_seconds=self._virtual,
            joules=self._joules,
        )
        return replace(done, stopped=stopped, why=why, at=time() if self._virtual is None else self._virtual)

    def diverged(self, run_state: RunState, error: Diverged) -> tuple[RunState, Done]:
        """Return the last model that learning had not left yet, looked at, and the last word of the run."""
        if not run_state.evaluation:
            with suppress(Diverged):  # its loss is not finite: what was said of earlier models is all there is
                run_state = jobs.look_now(self._job, run_state, None)
        return run_state, self.done(run_state, DIVERGED, str(error))
