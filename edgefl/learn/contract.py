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

from edgefl.base.schedule import Purpose
from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import LeftOut
from edgefl.learn.losses import Loss, cross_entropy
from edgefl.learn.models.base import Model
from edgefl.learn.models.rule import Rule
from edgefl.learn.products import ON_CPU, Products

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)  # an unknown hyper-parameter is a mistake, never ignored


def unwatched(_steps: int) -> None:
    """Ignore the progress: the default of a watch."""


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
    left_out: LeftOut = ()  # rows of `data` that no sum is over which leaves the device
    unbroken: bool = False  # all planned steps are taken, also when one leaves the finite numbers: the device hides it


@dataclass(frozen=True, slots=True)
class Budget:
    """How much work is asked: a number of mini-batches and a number of seconds, both upper limits."""

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
    evaluates: int | None = None  # evaluate the model on data set aside, if at least this many samples are there


@dataclass(frozen=True, slots=True)
class Counts:
    """What a device saw of one model on its samples, as edgefl/learn/evaluation/counts.py counts it."""

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
    """One link of the aggregation pipeline. What else it may have: `Traits`, and the protocols below them."""

    @property
    def name(self) -> str: ...

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]: ...


class Algorithm(Protocol):
    """A federated algorithm; its fields are its hyper-parameters. What else it may have: `Traits`, and what is below.

    `training.local.LocalTraining` has all but a name: one that derives from it says what is different.
    """

    @property
    def name(self) -> str: ...

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:
        """What every device is told besides the model; None: this round needs no device."""
        ...

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The device half: an answer, and what the device keeps for its next round."""
        ...

    def stages(self) -> tuple[Stage, ...]:
        """The server half."""
        ...


# ---- what an algorithm or a stage may say of itself; one that says nothing is the plain case -------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What an algorithm or a stage says of itself in its attribute `traits`; the defaults are the plain case."""

    # of both
    buffered: bool = False  # it can use answers that began from different models (rounds.mode = "buffered")
    one_model: str = ""  # why it cannot: completes the message that refuses such a run

    # of an algorithm
    uses_previous: bool = False  # the device half reads `task.previous`
    cohort_rounds: int = 1  # for how many consecutive rounds the same devices are asked
    free_rounds: bool = False  # `plan` is None in every second round
    any_optimiser: bool = False  # steps that are not plain may be those of any optimiser

    # of a stage
    individual: bool | None = None  # it looks at single updates; None: not said, and taken to by secure aggregation
    nests: bool = False  # the weighted mean of several answers, with their weight, is as good to it as they are
    makes_step: bool = False  # it makes the step out of `draft.updates`, whatever step stood there
    without_devices: bool = False  # it can be applied in a free round, when `draft.updates` is empty
    makes_free_rounds: bool = False  # it makes the model's step in a free round
    believes: str = ""  # what it takes a device's word for besides the update: completes a message
    history: int | None = None  # it weighs old answers itself, by `draft.ages`, up to this number of rounds ago
    needs_torch: bool = False  # it asks more of `site.model` than `Model` offers: it is a `TorchModel` then


@runtime_checkable
class Telling(Protocol):
    """An algorithm or a stage that says something of itself."""

    @property
    def traits(self) -> Traits: ...


def traits_of(thing: object) -> Traits:
    """Return what an algorithm or a stage says of itself, or the defaults."""
    return thing.traits if isinstance(thing, Telling) else Traits()


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
class Augmenting(Protocol):
    """An algorithm whose devices change their samples before each round, as `augment` says (data/augment.py)."""

    @property
    def augment(self) -> tuple[str, ...]: ...


@runtime_checkable
class Outvoting(Protocol):
    """A stage in which no single device matters."""

    def needs(self, answers: int) -> int:
        """Return how many answers are needed to outvote those that may lie, in a cohort of this size."""
        ...


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
    """Return whether devices have models of their own; as isinstance does, but looked up once for each class."""
    return issubclass(type(algorithm), Personal)


def rate(thing: Algorithm | Stage) -> float | None:
    """The learning rate, of an algorithm that has one."""
    return thing.lr if isinstance(thing, Descending) else None
