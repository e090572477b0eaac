"""Attackers in a simulated fleet: a few devices of the plain loop do not send what they should.

`Attacked` is an engine of the loop (`edgefl/sim/engines.py`), so a run with attackers is a run like any other:

    simulate(job, devices, tell, engine=Attacked(job, devices, attackers, ATTACKS["alie"]))

The attackers train as they are told, on data that the attack may have changed; then, when all answers of a round lie
side by side, the attack decides what the attackers' answers say. It sees everything: its own updates and the others'.
What it gives back meets codec, bounds and aggregation as in a fleet.

An attack of your own is one more `Attack`: `poison` takes an attacker's data, `lie` a `Sight` and gives back updates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefl.base.vector import Array, Vector
from edgefl.job.run.job import Job
from edgefl.job.run.work import Result
from edgefl.learn.contract import Update
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.engines import DeviceOrder, InProcessEngine
from edgefl.wire import tensors
from edgefl.wire.codecs import beside

WEIGHT = 1e12  # of a device that claims all
TIMES = 10.0  # as far backwards as its own update went forwards
Z = 1.5  # ALIE: standard deviations away from the mean of the others
EPSILON = 0.5  # inner-product manipulation: so much of the others' mean, backwards
TARGET = 0  # the class that a back door opens to


@dataclass(frozen=True, slots=True)
class Sight:
    """What the attackers of a round see: what they themselves trained, and what everybody else is about to send."""

    round: int
    own: Mapping[str, Update]
    others: Mapping[str, Update]

    def theirs(self) -> Array:
        """The others' deltas side by side; the attackers' own where there is nobody else."""
        return np.stack([update.delta.astype(np.float64) for update in (self.others or self.own).values()])

    def all_send(self, delta: Array) -> dict[str, Update]:
        """Every attacker sends this delta, with a weight that nobody notices."""
        usual = float(np.median([update.weight for update in (self.others or self.own).values()]))
        return {
            name: replace(update, delta=delta.astype(np.float32), weight=usual) for name, update in self.own.items()
        }


Lie = Callable[[Sight], Mapping[str, Update]]
Poison = Callable[[Dataset], Dataset]


@dataclass(frozen=True, slots=True)
class Attack:
    """What attackers do: to their data, to their answers, or to both."""

    poison: Poison | None = None
    lie: Lie | None = None


class Attacked:
    """An engine in which some devices attack; the others train as always."""

    parallel = 1

    def __init__(self, job: Job, devices: Mapping[str, Dataset], attackers: Sequence[str], attack: Attack) -> None:
        poison = attack.poison or (lambda data: data)
        held = {name: poison(data) if name in attackers else data for name, data in devices.items()}
        self._job, self._attackers, self._attack = job, frozenset(attackers), attack
        self._honest = InProcessEngine(job, held)

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        results = self._honest.results(orders)
        if self._attack.lie is None:
            return results
        updates = {order.device: one.update for order, one in zip(orders, results, strict=True)}
        own = {name: update for name, update in updates.items() if name in self._attackers}
        if not own:
            return results
        others = {name: update for name, update in updates.items() if name not in own}
        lies = self._attack.lie(Sight(orders[0].task.round, own, others))
        return [
            replace(one, update=received(self._job, lies[order.device])) if order.device in lies else one
            for order, one in zip(orders, results, strict=True)
        ]


def received(job: Job, update: Update) -> Update:
    """An update as the coordinator has it, by way of the run's codecs."""
    delta = tensors.encode({"delta": update.delta}, job.up, job.model.layout)[2]["delta"]
    return replace(update, delta=delta, extra=tensors.encode(update.extra, beside(job.up))[2])


# ---- the attacks -----------------------------------------------------------------------------------------------------


def claim_all(sight: Sight) -> dict[str, Update]:
    """Its update backwards, and a weight as if it had all the data in the world."""
    return {name: replace(update, delta=-update.delta, weight=WEIGHT) for name, update in sight.own.items()}


def backwards(sight: Sight) -> dict[str, Update]:
    """Minus ten times its update."""
    return {name: replace(update, delta=-TIMES * update.delta) for name, update in sight.own.items()}


def a_little_is_enough(sight: Sight) -> dict[str, Update]:
    """ALIE (Baruch et al., 2019): away from the mean by a little of the spread, number by number, all the same way."""
    theirs = sight.theirs()
    return sight.all_send(theirs.mean(axis=0) - Z * theirs.std(axis=0))


def inner_product(sight: Sight) -> dict[str, Update]:
    """IPM (Xie et al., 2019): some of the mean, backwards; small enough to look like somebody between all others."""
    return sight.all_send(-EPSILON * sight.theirs().mean(axis=0))


def flipped(data: Dataset) -> Dataset:
    """The data with each label c as the last class minus c."""
    return replace(data, y=data.classes - 1 - data.y)


def stamped(x: Array) -> Array:
    """Samples with the trigger of the back door: the last corner of an image, the last numbers of a list, set high."""
    marked: Array = x.copy()
    if marked.ndim > 2:
        marked[..., -2:, -2:] = 1.0
    else:
        marked[..., -4:] = 3.0
    return marked


def with_back_door(data: Dataset) -> Dataset:
    """The data, and each sample once more with the trigger and the attackers' class."""
    x = np.concatenate([data.x, stamped(data.x)])
    return replace(data, x=x, y=np.concatenate([data.y, np.full_like(data.y, TARGET)]))


def replacing(sight: Sight) -> dict[str, Update]:
    """Model replacement (Bagdasaryan et al., 2020): so long that the mean would become the attackers' model."""
    times = (len(sight.own) + len(sight.others)) / len(sight.own)
    return {name: replace(update, delta=_longer(update.delta, times)) for name, update in sight.own.items()}


def _longer(delta: Vector, times: float) -> Vector:
    return np.asarray(delta * np.float32(times))


ATTACKS: dict[str, Attack] = {
    "weight": Attack(lie=claim_all),
    "-10x": Attack(lie=backwards),
    "ALIE": Attack(lie=a_little_is_enough),
    "IPM": Attack(lie=inner_product),
    "label flip": Attack(poison=flipped),
    "back door": Attack(poison=with_back_door, lie=replacing),
}
