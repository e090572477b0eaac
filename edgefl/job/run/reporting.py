"""The facts of a run: before its first round, of each round, and at its end; the same in every driver."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefl.base.events import Described, Done, Evaluating, Fact, Inherited, Round
from edgefl.base.vector import Array
from edgefl.job.run import statistics
from edgefl.job.run.job import Job, Opinion, RunState, chosen, stale
from edgefl.learn.contract import Update
from edgefl.learn.evaluation import counters
from edgefl.learn.training.divergence import unscaled


def openings(job: Job, run_state: RunState) -> tuple[Fact, ...]:
    """Return the facts before the first round, which are emitted again after a restart."""
    origin = run_state.origin
    if origin is None:
        return (opening(job, run_state),)
    return opening(job, run_state), Inherited(origin.source, origin.sha256, origin.run, origin.round)


def opening(job: Job, run_state: RunState | None = None) -> Evaluating:
    """Return the fact that says how the run is evaluated, and how good its first model is."""
    test = job.test
    first = run_state.evaluation if run_state and run_state.round == 0 else None
    return Evaluating(
        data=job.run.task.data,
        samples=0 if test is None else len(test),
        set_aside=job.set_aside,
        unscaled=None if test is None or job.run.task.normalise == "fleet" else unscaled(test),
        public=len(job.public),
        classes=job.classes,
        class_names=job.class_names,
        targets=job.targets,
        target_names=job.target_names,
        on=job.run.judge,
        every=job.run.evaluation.every,
        split="test" if job.run.evaluation.validation is None else "validation",
        first=first.scores if first else None,
        kind=job.form.kind,
    )


def description(job: Job, run_state: RunState, answers: Mapping[str, Update], **more: Any) -> Described:
    """Return the fact of the round in which devices described their data."""
    told = statistics.told(run_state.states, job.class_weights)
    silent = sum(not one.extra["samples"].any() for one in answers.values())
    told_of = statistics.fact(run_state.states[statistics.NAME], silent, told.get("fleet/weights"))
    return Described(run_state.round, **told_of, class_names=job.class_names, **more)


def scores(seen: Opinion | None) -> dict[str, Any]:
    """Return the fields of a fact that hold a model's figures, in all and for each target."""
    return {"scores": seen.scores, "per_target": seen.per_target} if seen else {"scores": {}, "per_target": None}


def report(run_state: RunState, updates: Mapping[str, Update], **more: Any) -> Round:
    """Return the fact of a round and of the updates merged in it; `more` is what the driver counted and timed."""
    seen = run_state.evaluation
    return Round(
        run_state.round,
        **scores(seen),
        forgetting=run_state.forgetting,
        per_class=_numbers(seen.per_class) if seen else None,
        devices=sum(update.devices for update in updates.values()),
        updates=counters.of_updates(updates),
        stages=counters.of_stages(run_state.states),
        bounded={device: dict(factors) for device, factors in run_state.bounded.items()},
        **more,
    )


def staleness(job: Job, ages: Mapping[str, int]) -> float | None:
    """Return the mean age of a round's answers in rounds; None where all of them began in it."""
    return sum(ages.values()) / len(ages) if job.run.buffered and ages else None


def summary(job: Job, run_state: RunState, *, bytes_up: int, bytes_down: int, **more: Any) -> Done:
    """Return the last fact of a run; `more` is what the driver counted and timed."""
    seen, reached, best = chosen(job, run_state), run_state.reached, run_state.best
    return Done(
        job.name,
        job.algorithm.name,
        run_state.round,
        **scores(seen),
        best_score={run_state.measure: best} if run_state.measure and best is not None else {},
        best_round=run_state.best_round,
        stopped=more.pop("stopped", "") or _why(job, run_state),
        per_class=_numbers(seen.per_class) if seen and seen.per_class is not None else None,
        class_names=job.class_names,
        target_names=job.target_names,
        rounds_to_target=reached,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        bytes_to_target=None if reached is None else bytes_up + bytes_down,
        model_sha256=run_state.sha256(),
        **more,
    )


def _why(job: Job, run_state: RunState) -> str:
    """Return why the run ends before its last round; empty if it does not."""
    if run_state.round >= job.run.run.rounds:
        return ""
    if run_state.reached is not None:
        return "the target is reached"
    patience = job.run.evaluation.patience
    return f"no model was better for {patience} rounds" if stale(job, run_state) else ""


def _numbers(shares: Array | Sequence[float | None]) -> tuple[float | None, ...]:
    return tuple(None if v is None or np.isnan(v) else round(float(v), 6) for v in shares)
