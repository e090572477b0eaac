"""What becomes of an answer that came too late for its round."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from edgefl.learn.contract import Update

Policy = Literal["drop", "discount", "memory"]


@dataclass(frozen=True, slots=True)
class Latecomer:
    """An answer to `round`, which is over."""

    round: int
    update: Update


def fold(
    policy: Policy, round: int, updates: Mapping[str, Update], late: Mapping[str, Latecomer]
) -> tuple[dict[str, Update], dict[str, Update]]:
    """The updates that this round merges, and those that its stages find in `Draft.late`.

    discount   a late one is merged like the others, with weight / (1 + sqrt(staleness)): it started from an older model
    memory     a late one is only shown to the stages; GradMA and MIFA take it into their memory
    drop       a late one is dropped

    Where a device has answered this round as well, the fresh answer stands.
    """
    behind = {device: came for device, came in sorted(late.items()) if device not in updates}
    match policy:
        case "drop":
            return dict(updates), {}
        case "memory":
            return dict(updates), {device: came.update for device, came in behind.items()}
        case "discount":
            return {**updates, **{d: discounted(came.update, round - came.round) for d, came in behind.items()}}, {}


def discounted(update: Update, staleness: int) -> Update:
    """The update, counting for less the older the model was that it started from."""
    return update.weighing(update.weight / (1 + sqrt(staleness)))
