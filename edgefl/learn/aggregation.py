"""The aggregation pipeline: one draft of the next model flows through a chain of stages.

A stage reads the draft, replaces its step, and keeps its own state under its own name; so stages mix freely,
and a checkpoint knows what belongs to whom.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import Diverged, RunError
from edgefl.base.vector import State, Vector, norm
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Traits, Update, rate, traits_of
from edgefl.learn.training.divergence import likely_cause, quiet


def weights(updates: Mapping[str, Update]) -> dict[str, float]:
    """Each device's share of the mean: non-negative, together one."""
    total = sum(update.weight for update in updates.values())
    return {device: update.weight / total for device, update in updates.items()}


def mean(updates: Mapping[str, Update]) -> Vector:
    """The weighted mean of the deltas, summed in the order of `updates`."""
    if not updates:
        raise RunError("there is nothing to average: no device answered")
    shares = weights(updates)
    first = next(iter(updates.values())).delta
    total, part = np.zeros_like(first), np.empty_like(first)
    for device, update in updates.items():
        np.multiply(update.delta, first.dtype.type(shares[device]), out=part)
        total += part
    return np.asarray(total)


@dataclass(frozen=True, config=STRICT)
class Mean:
    """The step is the weighted mean of what the devices did."""

    name: Literal["mean"] = "mean"

    traits = Traits(individual=False, nests=True, buffered=True, makes_step=True)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        return replace(draft, step=mean(draft.updates)), state


@dataclass(frozen=True, config=STRICT)
class Scale:
    """A server learning rate; statistics are left alone."""

    name: Literal["scale"] = "scale"
    factor: Annotated[float, Field(gt=0)] = 1.0

    traits = Traits(individual=False, nests=True, buffered=True, without_devices=True)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        step = draft.step.copy()
        step[: site.model.layout.trainable] *= step.dtype.type(self.factor)
        return replace(draft, step=step), state


@dataclass(frozen=True, config=STRICT)
class Clip:
    """No round moves the model further than `norm`; statistics are left alone."""

    name: Literal["clip"] = "clip"
    norm: Annotated[float, Field(gt=0)] = 1.0

    traits = Traits(individual=False, nests=True, buffered=True, without_devices=True)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k = site.model.layout.trainable
        length = norm(draft.step[:k])
        if length <= self.norm:
            return draft, state
        step = draft.step.copy()
        step[:k] *= step.dtype.type(self.norm / length)
        return replace(draft, step=step), state


@dataclass(frozen=True, config=STRICT)
class Momentum:
    """Server momentum: m = beta m + step, and the step is rate times m. Statistics are left alone.

    The push of a free round is a step like any other: the momentum takes it in, and adds to it what it carries.
    """

    name: Literal["momentum"] = "momentum"
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rate: Annotated[float, Field(gt=0)] = 1.0

    traits = Traits(individual=False, nests=True, buffered=True, without_devices=True)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        k, real = site.model.layout.trainable, draft.step.dtype.type
        moved = draft.step[:k] if "m" not in state else real(self.beta) * state["m"] + draft.step[:k]
        return replace(draft, step=np.concatenate([real(self.rate) * moved, draft.step[k:]])), {"m": moved}


def merge(
    round: int,
    params: Vector,
    updates: Mapping[str, Update],
    *,
    stages: Sequence[Stage],
    states: Mapping[str, State],
    site: Site,
    population: int = 0,
    late: Mapping[str, Update] | None = None,
    ages: Mapping[str, int] | None = None,
    shrink: float = 1.0,
) -> tuple[Vector, dict[str, State]]:
    """The next model, and the next state of every stage; the step of the answers themselves is `shrink` times as long.

    Updates are sorted by device here, once, so that no result depends on the order of arrival.
    """
    arrived, late = dict(sorted(updates.items())), dict(sorted((late or {}).items()))
    draft = Draft(round, params, arrived, np.zeros_like(params), population or len(arrived), late, ages or {})
    after = dict(states)
    with quiet():
        for stage in stages:
            where = f"coordinator, round {round}: aggregation '{stage.name}'"
            try:
                draft, after[stage.name] = stage.apply(draft, after.get(stage.name, {}), site)
            except Diverged as error:
                cause = likely_cause(site.data, rate(stage)).replace("algorithm.lr", "its lr")
                raise Diverged(f"{where}: {error} on the public data; {cause}") from None
            if shrink != 1.0 and traits_of(stage).makes_step:
                draft = replace(draft, step=draft.step * draft.step.dtype.type(shrink))
            if not np.isfinite(draft.step).all():
                raise Diverged(f"{where}: the model after it is not finite; lower the learning rate")
        merged = params + draft.step
    if not np.isfinite(merged).all():
        raise Diverged(f"coordinator, round {round}: the merged model is not finite; lower the learning rate")
    return merged, after
