"""What an algorithm is: one frozen record in one file, whose three methods tell a round in order.

    plan    what the devices are told          (coordinator)
    train   the device half                    (device)
    stages  the server half, link by link      (coordinator)

It is cut exactly where the network is, so the same file runs in a for-loop, in an emulated fleet and over MQTT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from pydantic import ConfigDict

from edgefl.data.dataset import Dataset
from edgefl.losses import Loss, cross_entropy
from edgefl.models.base import Model
from edgefl.models.rule import Rule
from edgefl.offers import offers
from edgefl.products import ON_CPU, Products
from edgefl.schedule import Purpose
from edgefl.vector import Array, Layout, State, Vector

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)  # an unknown hyper-parameter is a mistake, never ignored


def unwatched(_steps: int) -> None:
    """Nobody is watching."""


class Noise(Protocol):
    """Where the noise of a private version comes from; numpy's generators are such a source."""

    def normal(self, loc: float, scale: float, size: int) -> Array: ...

    def gamma(self, shape: int, scale: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Site:
    """Where training happens: private data on a device, public data at the coordinator."""

    model: Model
    data: Dataset
    rng: np.random.Generator
    loss: Loss = cross_entropy
    watch: Callable[[int], None] = unwatched  # told after every step; may raise to abandon the work
    noise: Noise | None = None  # on a real device; without it a private version takes its noise from `rng`
    timer: Callable[[], float] = perf_counter  # seconds that only grow: a budget is counted in them
    products: Products = ON_CPU  # who multiplies vectors as long as the model, for a stage that projects


@dataclass(frozen=True, slots=True)
class Budget:
    """How much work is asked: at most so many mini-batches, at most so many seconds."""

    batches: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a device is told: start here, do this much, and whatever the plan added."""

    round: int
    params: Vector
    budget: Budget = field(default_factory=Budget)
    extra: State = field(default_factory=dict)
    previous: Vector | None = None  # the model one round earlier, for algorithms that look back; None in round 1
    purpose: Purpose = "train"  # or only to evaluate
    evaluates: int | None = None  # count what the model does on data set aside, if there are so many samples


@dataclass(frozen=True, slots=True)
class Counts:
    """What a device saw of one model on its samples, as edgefl/evaluation/counts.py counts it."""

    table: Array  # int64; float64 where it was scaled down
    loss: float
    sums: Array  # float64, (4, targets); none where there are classes

    @property
    def samples(self) -> int:
        return round(float(self.table.sum()))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a device saw on data it set aside: of the model it received and, where it trained, of its own."""

    received: Counts
    trained: Counts | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What a device answers. Partial work is welcome: `steps` says how much was done."""

    delta: Vector  # its model minus the one it received
    weight: float
    steps: int
    extra: State = field(default_factory=dict)
    seen: Seen | None = None  # where the run is judged by devices; no algorithm reads it
    devices: int = 1  # whose weighted mean it is: a gateway answers for several
    loss: float | None = None  # of the received model on its own data, where the run's selection asks for it

    def weighing(self, weight: float) -> "Update":
        """The same with another weight."""
        return replace(self, weight=weight)

    def through(self, change: "Callable[[Vector, State], tuple[Vector, State]]") -> "Update":
        """The same with what `change` makes of its arrays."""
        delta, extra = change(self.delta, self.extra)
        return replace(self, delta=delta, extra=extra)

    def opened(self) -> "Update":
        """The same with all its arrays at hand. One that lies on disk reads it at each look: look once."""
        return self


@dataclass(frozen=True, slots=True)
class Draft:
    """The next model while it is being made: `params + step`. `updates` are sorted by device."""

    round: int
    params: Vector
    updates: Mapping[str, Update]
    step: Vector
    population: int = 0  # how many devices the fleet has, asked or not
    late: Mapping[str, Update] = field(default_factory=dict)  # answers to earlier rounds that came too late for them
    ages: Mapping[str, int] = field(default_factory=dict)  # how many rounds ago answers began, where it is not this one


class Stage(Protocol):
    """One link of the aggregation pipeline. What else it may say of itself stands at the end of this file."""

    @property
    def name(self) -> str: ...

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]: ...


class Algorithm(Protocol):
    """A federated algorithm; its fields are its hyper-parameters. What else it may say stands at the end of this file.

    `training.local.LocalTraining` has all but a name and the stages: one that derives from it says what is different.
    """

    @property
    def name(self) -> str: ...

    @property
    def uses_previous(self) -> bool:
        """Whether the device half reads `task.previous`."""
        ...

    @property
    def cohort_rounds(self) -> int:
        """For how many consecutive rounds the same devices are asked."""
        ...

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:
        """What every device is told besides the model; None: this round needs no device."""
        ...

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The device half: an answer, and what the device keeps for its next round."""
        ...

    def stages(self) -> tuple[Stage, ...]:
        """The server half."""
        ...


# ---- what an algorithm or a stage may say of itself besides; who does not say is taken for the plain case ------------


@runtime_checkable
class Descending(Protocol):
    """It takes steps of gradient descent: its rate is the first suspect when learning fails."""

    @property
    def lr(self) -> float: ...


@runtime_checkable
class Ruled(Protocol):
    """It takes plain steps by this rule, if there is one: devices get a graph that takes whole ones."""

    def rule(self) -> Rule | None: ...


@runtime_checkable
class Batched(Protocol):
    """Its device half goes through the data in mini-batches: how long that takes can be told in advance."""

    @property
    def batch(self) -> int: ...

    @property
    def epochs(self) -> float: ...

    @property
    def batches(self) -> int | None: ...


@runtime_checkable
class Resting(Protocol):
    """An algorithm whose `plan` is None in every second round, if `free_rounds`."""

    @property
    def free_rounds(self) -> bool: ...


@runtime_checkable
class Pushing(Protocol):
    """A stage that makes the model's step in a free round, if `makes_free_rounds`."""

    @property
    def makes_free_rounds(self) -> bool: ...


@runtime_checkable
class Lasting(Protocol):
    """A stage that can be applied in a free round, when `updates` is empty, if `without_devices`."""

    @property
    def without_devices(self) -> bool: ...


@runtime_checkable
class Summing(Protocol):
    """A stage that works on sums over devices alone, unless `individual`; single updates secure aggregation hides."""

    @property
    def individual(self) -> bool: ...


@runtime_checkable
class Torched(Protocol):
    """A stage that asks more of `site.model` than a `Model` offers, if `needs_torch`: it is a `TorchModel` then.

    Any other run is evaluated and merged on the graphs that devices train from, and its coordinator never loads torch.
    """

    @property
    def needs_torch(self) -> bool: ...


@runtime_checkable
class Nesting(Protocol):
    """A stage to which the weighted mean of several answers, with their weight, is as good as they are, if `nests`."""

    @property
    def nests(self) -> bool: ...


@runtime_checkable
class Stepping(Protocol):
    """A stage that makes the step out of `updates`, whatever step stood there, if `makes_step`."""

    @property
    def makes_step(self) -> bool: ...


@runtime_checkable
class Outvoting(Protocol):
    """A stage in which no single device matters, if `outvotes`; of so many answers it needs at least `needs`."""

    @property
    def outvotes(self) -> bool: ...

    def needs(self, answers: int) -> int: ...


@runtime_checkable
class Buffering(Protocol):
    """An algorithm or a stage that does with answers which began from different models, if `buffered`."""

    @property
    def buffered(self) -> bool: ...


@runtime_checkable
class Cohesive(Protocol):
    """An algorithm or a stage that does not: `one_model` says why all answers must have begun from the same one."""

    @property
    def one_model(self) -> str: ...


@runtime_checkable
class Believing(Protocol):
    """A stage that takes every device's word for something besides its update: `believes` says for what."""

    @property
    def believes(self) -> str: ...


@runtime_checkable
class Ageing(Protocol):
    """A stage that looks at `draft.ages` itself, of answers that began up to `history` rounds ago.

    To all others an old answer weighs less (run/freshness.py).
    """

    @property
    def history(self) -> int: ...


@runtime_checkable
class Augmenting(Protocol):
    """An algorithm whose devices change their samples before each round, as `augment` says (data/augment.py)."""

    @property
    def augment(self) -> tuple[str, ...]: ...


@runtime_checkable
class Personal(Protocol):
    """An algorithm that leaves every device a model of its own: that one is judged on the device's data."""

    def own(self, params: Vector, state: State, layout: Layout) -> Vector:
        """The model a device would use now: of the one it received and what it kept; nothing kept: as received."""
        ...


@runtime_checkable
class Fitting(Protocol):
    """An algorithm that depends on the network's tensors: it says before a run begins whether these will do."""

    def fits(self, layout: Layout) -> None:
        """Nothing, or a ConfigError that says which tensors there are."""
        ...


def is_personal(algorithm: object) -> TypeGuard[Personal]:
    """Whether devices have models of their own."""
    return offers(algorithm, Personal)


def is_augmenting(algorithm: object) -> TypeGuard[Augmenting]:
    """Whether devices change their samples."""
    return offers(algorithm, Augmenting)


def rate(thing: Algorithm | Stage) -> float | None:
    """The learning rate, of whoever has one."""
    return thing.lr if isinstance(thing, Descending) else None
