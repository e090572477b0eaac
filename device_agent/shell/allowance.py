"""What a task costs the privacy of this device's data, booked before it begins; and what the device's operator allows.

A coordinator chooses model, algorithm and noise, and a thief of its key can choose a model whose update is a sample.
So with an allowance (`[privacy]` of the agent file) this device sends only updates with noise, and no more than the
allowance covers. Epsilons and deltas of all runs are added up (basic composition). The number of updates is bounded
too, because the time at which an update arrives reveals something that no noise covers.

Whatever becomes of a task, its event is on disk before its graph runs, and a task that runs again is booked again. With
an allowance the device also hides how the work went (`TrainingOrder.hidden`), and declines with one text, `UNDONE`.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import fsum, inf
from typing import Any

from device_agent.decide.vocabulary import Tasked
from device_agent.durable.failures import Failures
from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.shell.order import TrainingOrder
from device_agent.shell.samples import Samples
from device_agent.shell.workers import FEWER, check_shape, price, trained_on
from edgefl.base.errors import IN_THE_LOG, RemoteError
from edgefl.job.config.allowance import Allowance
from edgefl.learn.algorithms import registry
from edgefl.learn.privacy.noise import Output
from edgefl.learn.privacy.private import is_private

WHERE = "[privacy] of its agent file"
KNOWN = f"privacy.samples: {FEWER}"  # which follows from the number of samples alone
UNDONE = f"privacy.undone: this device could not do this task; {IN_THE_LOG}"


@dataclass(frozen=True, slots=True)
class Booking:
    """Books each task before it begins, and declines it by a code if the allowance does not cover it.

    Whether it declines depends on the task, the ledger, and the number and the shape of the samples: never on what they
    hold.
    """

    allowance: Allowance
    ledger: PrivacyLedger
    failures: Failures
    samples: Samples
    allowed: AbstractSet[str]  # `package.module:name` of code that a job may name

    @property
    def hides(self) -> bool:
        """Whether the operator has an allowance, so that the device hides how work went."""
        return self.allowance.epsilon is not None

    def book(self, order: TrainingOrder, key: str) -> TrainingOrder:
        """Book the order of the coordinator with this key; return it as it is to be carried out."""
        manifest, task = order.item.manifest, order.task
        if self.hides:
            self.failures.check(key)
            if why := without_noise(task, registry.algorithm(manifest.algorithm, self.allowed)):
                raise RemoteError("privacy.noise", why, free_of_data=True)
            check_shape("this device", self.samples.data, manifest)
        count = trained_on(self.samples.data, self.samples, order)
        cost = price(manifest, task, count, self.allowed)
        if cost is not None and self.hides:
            spent = {**self.ledger.runs, task.run_key: self.ledger.reckoned(task.run_key, cost)}
            if why := beyond(self.allowance, spent.values()):
                raise RemoteError("privacy.spent", why, free_of_data=True)
        if self.hides:
            self.failures.begin(key)
            # How many steps fit into a time depends on the machine, and on the data: it takes those that are planned.
            order = replace(order, hidden=True, task=replace(task, seconds=None))
        if cost is not None:
            self.ledger.spend(task.run_key, cost)
            order = order if isinstance(cost.mechanism, Output) else replace(order, fewest=count)
        return order


def without_noise(task: Tasked, algorithm: object) -> str:
    """Why a task would have something leave the device without noise; empty if it would not."""
    if task.purpose != "train":
        return f"this device sends nothing about its data without noise ({WHERE})"
    if task.evaluates is not None:
        return f"this device sends no counts of what a model does on its data ({WHERE})"
    if not is_private(algorithm) or algorithm.privacy is None:
        return f"this device trains with noise only ({WHERE}), and the run has no [privacy]"
    return ""


def beyond(allowance: Allowance, spent: Iterable[dict[str, Any]]) -> str:
    """Why this is more than is allowed, of a ledger's entries (Any: as JSON has them); empty if it is not."""
    if allowance.epsilon is None:
        return ""
    entries = list(spent)
    epsilon = fsum(_number(entry["epsilon"]) for entry in entries)
    delta = fsum(_number(entry["delta"]) for entry in entries)
    if (updates := sum(int(entry["odd_updates"]) for entry in entries)) > allowance.updates:
        return (
            f"with this update the device would have made {updates} of them, and its operator allows"
            f" {allowance.updates} ({WHERE})"
        )
    if epsilon <= allowance.epsilon and delta <= allowance.delta:
        return ""
    return (
        f"with this update the device's data would have cost epsilon {epsilon:.4g} at delta {delta:.3g}, and its"
        f" operator allows {allowance.epsilon:g} at {allowance.delta:g} ({WHERE})"
    )


def _number(value: object) -> float:
    """Of a ledger: what promises nothing stands there as null."""
    return float(value) if isinstance(value, int | float) else inf
