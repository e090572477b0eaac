"""What this device's operator allows its data to cost (`[privacy]` of the agent file), whatever a run asks for.

A coordinator chooses model, algorithm and noise, and whoever has its key can choose a model whose update is a sample.
So where there is an allowance, only what has noise on it leaves this device, and no more of it than the allowance
covers: epsilons and deltas of all runs are added up (basic composition). It is looked at before work is begun, and
again when the update has been paid for, since one that was cancelled may have been paid for meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, inf
from typing import Any

from device_agent.order import Cancellation, Order, Train, Watch
from device_agent.privacy_ledger import PrivacyLedger
from device_agent.samples import Samples
from device_agent.vocabulary import Tasked
from device_agent.workers import price, trained_on
from edgefl.algorithms import registry
from edgefl.config.allowance import Allowance
from edgefl.errors import RemoteError
from edgefl.privacy import Price
from edgefl.privacy.private import is_private
from edgefl.run.work import Done

WHERE = "[privacy] of its agent file"


@dataclass(frozen=True, slots=True)
class Affordable:
    """Has a task trained if its operator's allowance covers it, and declines it by a code if not."""

    train: Train
    allowance: Allowance
    ledger: PrivacyLedger
    samples: Samples
    allowed: frozenset[str]  # `package.module:name` of code that a job may name

    def __call__(self, order: Order, watch: Watch, cancelled: Cancellation) -> tuple[Done, Price | None]:
        """The work that was ordered, and what it cost."""
        task, manifest = order.task, order.item.manifest
        if why := without_noise(task, registry.algorithm(manifest.algorithm, self.allowed)):
            raise RemoteError("privacy.noise", why)
        cost = price(manifest, task, trained_on(self.samples.data, self.samples, order), self.allowed)
        if cost is not None:
            spent = dict(self.ledger.runs)  # whole: its owner is another thread
            spent[task.run_key] = self.ledger.reckoned(task.run_key, cost)
            if why := beyond(self.allowance, spent.values()):
                raise RemoteError("privacy.spent", why)
        return self.train(order, watch, cancelled)


def without_noise(task: Tasked, algorithm: object) -> str:
    """Why a task would have something leave the device without noise; empty if it would not."""
    if task.purpose != "train":
        return f"this device tells nothing about its data without noise ({WHERE})"
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
    if epsilon <= allowance.epsilon and delta <= allowance.delta:
        return ""
    return (
        f"with this update the device's data would have cost epsilon {epsilon:.4g} at delta {delta:.3g}, and its"
        f" operator allows {allowance.epsilon:g} at {allowance.delta:g} ({WHERE})"
    )


def _number(value: object) -> float:
    """Of a ledger: what promises nothing stands there as null."""
    return float(value) if isinstance(value, int | float) else inf
