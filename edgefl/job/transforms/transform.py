"""What a transform is: a name, what it asks of others, and two halves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from edgefl.base.vector import Layout, State
from edgefl.learn.contract import Update

SUM = "sum"  # stands for the devices whose answers were added up


@dataclass(frozen=True, kw_only=True)
class Transform:
    """One thing that is done to updates. Its halves are those of a subclass: on numbers, or on bytes."""

    name: str  # as an operator finds it in the run file: it stands in messages
    needs_single: bool = False  # its coordinator half looks at the update of each device by itself
    commutes: bool = True  # a sum of updates that went through it is what the coordinator should have of their sum
    hides: bool = False  # its coordinator half is given the sum of all answers, and nothing can be read before


@dataclass(frozen=True, slots=True)
class VectorForm:
    """How many numbers of which type are in the vector that a device sends."""

    size: int
    dtype: npt.DTypeLike = np.float32

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """Whose update it is, in which round; `state` is what the device kept of its earlier rounds."""

    seed: int
    round: int
    device: str
    layout: Layout
    state: State = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """Which round is being merged, for a model of which layout."""

    round: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """The answers of a round on their way to the stages."""

    updates: Mapping[str, Update]  # by device; a single one, SUM, behind a transform that hides them
    late: Mapping[str, Update] = field(default_factory=dict)  # to earlier rounds, shown to the stages beside the others
    states: Mapping[str, State] = field(default_factory=dict)  # of the run, by owner: what a coordinator half remembers
    bounded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by device: what, and by which factor


@dataclass(frozen=True, kw_only=True)
class OnNumbers(Transform):
    """A transform of the update itself. Each half that a subclass does not have changes nothing."""

    def form(self, form: VectorForm) -> VectorForm:
        """Return what the device half makes of a vector of this form."""
        return form

    def device(self, update: Update, kept: State, context: DeviceContext) -> tuple[Update, State]:  # noqa: ARG002
        """Return the update as it goes on, and what the device keeps once the update is accepted."""
        return update, kept

    def coordinator(self, answers: AnswerSet, context: CoordinatorContext) -> AnswerSet:  # noqa: ARG002
        """Return the answers as they go on; where the transform hides single updates there is one, their sum."""
        return answers


def at_device(
    transforms: Sequence[Transform], update: Update, kept: State, context: DeviceContext
) -> tuple[Update, State]:
    """Return the update behind all device halves on numbers, and what the device keeps of it."""
    for transform in transforms:
        if isinstance(transform, OnNumbers):
            update, kept = transform.device(update, kept, context)
    return update, kept


def at_coordinator(transforms: Sequence[Transform], answers: AnswerSet, context: CoordinatorContext) -> AnswerSet:
    """Return the answers of a round behind all coordinator halves on numbers, the last transform first."""
    for transform in reversed(transforms):
        if not isinstance(transform, OnNumbers):
            continue
        if transform.hides:
            if not answers.updates:  # a round that needs no device
                continue
            answers = replace(answers, updates={SUM: summed(answers.updates)})
        answers = transform.coordinator(answers, context)
    return answers


def form_sent(transforms: Sequence[Transform], layout: Layout) -> VectorForm:
    """Return the form of the vector that devices send for a model of this layout."""
    form = VectorForm(layout.size)
    for transform in transforms:
        if isinstance(transform, OnNumbers):
            form = transform.form(form)
    return form


def summed(updates: Mapping[str, Update]) -> Update:
    """Return one update whose vector, weight, steps, devices, and arrays that all have, are the sums of all.

    Arrays are added in their own type: unsigned integers of k bits modulo 2^k, whatever the order.
    """
    first, *others = (update for _, update in sorted(updates.items()))
    update = first.opened()
    arrays = {name: array.copy() for name, array in update.extra.items()}
    delta, weight, steps, devices = update.delta.copy(), update.weight, update.steps, update.devices
    for other in others:
        update = other.opened()
        delta += update.delta
        arrays = {name: array for name, array in arrays.items() if name in update.extra}
        for name, total in arrays.items():
            np.add(total, update.extra[name], out=total)
        weight, steps, devices = weight + update.weight, steps + update.steps, devices + update.devices
    return Update(delta, weight, steps, arrays, devices=devices)
