"""What the robust stages share: how many answers may lie, who is believed, and what is done when too few came.

    answers ─▶ a robust stage ─┬─▶ step      out of all answers, one vote each: a weight is a device's own word
                               └─▶ updates   those that are believed: what SGC, a memory or a teacher behind it sees

In every stage the statistics (BatchNorm) are the median of all answers, number by number. They have another scale than
weights, and a device that sends honest weights may still lie about them. Stages do not see late answers.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from edgefl.base.errors import RunError
from edgefl.base.vector import BLOCK, Array, State, Vector
from edgefl.learn.contract import Draft, Traits, Update

Share: TypeAlias = Annotated[float, Field(gt=0, lt=0.5)]  # of the answers, that may lie
OUTVOTED = 3  # answers that it takes to outvote one
VOTE = Traits(
    individual=True,
    one_model="a vote is about one model, and gives every answer one voice whatever its age",
    makes_step=True,
)

log = logging.getLogger(__name__)


def liars(share: float, answers: int) -> int:
    """Return how many of the answers that share is, rounded up."""
    return ceil(share * answers - 1e-9)  # 0.07 * 100 is a little more than seven


def blocks(deltas: Sequence[Vector]) -> Iterator[tuple[slice, Array]]:
    """The deltas side by side in float64, some columns at a time: all of them at once might not fit into memory."""
    if not deltas:
        raise RunError("there is nothing to aggregate: no device answered")
    for start in range(0, len(deltas[0]), BLOCK):
        columns = slice(start, start + BLOCK)
        yield columns, np.stack([delta[columns].astype(np.float64) for delta in deltas])


def median(deltas: Sequence[Vector]) -> Vector:
    """The median of each number; of two in the middle their mean."""
    middle = np.empty_like(deltas[0]) if deltas else np.zeros(0)
    for columns, block in blocks(deltas):
        middle[columns] = np.median(block, axis=0)
    return middle


def distances(deltas: Sequence[Vector], centre: Vector) -> Array:
    """How far each delta is from the centre."""
    squares = np.zeros(len(deltas))
    for columns, block in blocks(deltas):
        squares += ((block - centre[columns].astype(np.float64)) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(squares))


def nearest(updates: Mapping[str, Update], centre: Vector, count: int) -> tuple[str, ...]:
    """The devices whose updates are nearest to the centre, as far as it goes; of two alike the first by name."""
    devices, k = sorted(updates), len(centre)
    far = distances([updates[device].delta[:k] for device in devices], centre)
    return tuple(sorted(devices[i] for i in np.argsort(far, kind="stable")[:count]))


def trained(draft: Draft, trainable: int) -> list[Vector]:
    """What each device did to the weights."""
    return [update.delta[:trainable] for update in draft.updates.values()]


def outvoted(draft: Draft, centre: Vector, believed: Sequence[str], trainable: int) -> Draft:
    """The draft that goes on: the centre and the usual statistics as its step, and the answers that are believed."""
    statistics = usual_statistics(draft, trainable)
    kept = {device: settled(draft.updates[device], trainable, statistics) for device in sorted(believed)}
    return replace(draft, step=np.concatenate([centre, statistics]), updates=kept, late={})


def usual_statistics(draft: Draft, trainable: int) -> Vector:
    """The median of the answers' statistics; nothing, where the model has none."""
    tails = [update.delta[trainable:] for update in draft.updates.values()]
    return median(tails) if tails and tails[0].size else np.zeros(0, draft.params.dtype)


def settled(update: Update, trainable: int, statistics: Vector, factor: float = 1.0) -> Update:
    """The update with one vote, these statistics, and its weights scaled by the factor."""
    delta = update.delta[:trainable] if factor == 1 else update.delta[:trainable] * update.delta.dtype.type(factor)
    return replace(update, delta=np.concatenate([delta, statistics]), weight=1.0)


def too_few(draft: Draft, stage: str, needed: int, *, instead: str) -> bool:
    """Whether this round has fewer answers than the stage needs; then the log says what is done instead."""
    few = len(draft.updates) < needed
    if few:
        log.warning(
            "too few answers round=%d stage=%s answers=%d needed=%d: %s",
            *(draft.round, stage, len(draft.updates), needed, instead),
        )
    return few


def counted(state: State, short: bool) -> State:
    """The stage's count of rounds that had too few answers, which every report shows."""
    return {"short": np.array(int(state.get("short", 0)) + short, np.int64)}


def by_median(draft: Draft, trainable: int) -> Draft:
    """What every stage does that has too few answers for its setting: the median, which outvotes all that can be."""
    centre = median(trained(draft, trainable))
    return outvoted(draft, centre, nearest(draft.updates, centre, len(draft.updates) // 2 + 1), trainable)
