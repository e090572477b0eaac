"""Guards at the door: numbers that cannot be added up, and devices that send more than they may."""

from dataclasses import dataclass, field

import numpy as np

from edgefl.base.errors import WireError
from edgefl.job.config.schema import Guards
from edgefl.job.run.work import must_be_finite
from edgefl.learn.contract import Update
from edgefl.learn.training.divergence import exploded

MINUTE = 60.0
RECORDS = 20_000  # devices whose behaviour is remembered
LARGEST = 1e30  # of the numbers beside an update: their squares can be added up


def check(device: str, update: Update, model: float) -> None:
    """Refuse numbers that are not finite, or would overflow; `model` is the length of the model itself.

    Integers come from a transform that hides updates: their length says nothing. Whatever else is too much is bounded
    when it is merged, by what others sent: nothing is learned here.
    """
    if update.delta.dtype.kind == "f" and (absurd := exploded(update.delta, model)):
        must_be_finite("delta", update.delta)
        raise WireError("update.norm", f"device '{device}': {absurd}")
    for name, array in update.extra.items():
        largest = float(np.abs(array).max(initial=0))
        if not largest <= LARGEST:
            must_be_finite(name, array)
            raise WireError("update.norm", f"device '{device}': '{name}' has a number of {largest:.3g}")


@dataclass(slots=True)
class _Record:
    began: float = 0.0  # of the minute that is being counted
    bytes: int = 0
    spent: float = 0.0  # of the messages it may send, made good with time
    spoke: float = 0.0


@dataclass(slots=True)
class Guard:
    """What each device has sent lately."""

    rules: Guards
    records: dict[str, _Record] = field(default_factory=dict)

    def allows(self, device: str, count: int, now: float) -> bool:
        """Return whether this number of bytes more is within the device's quota."""
        record = self._record(device)
        if now - record.began >= MINUTE:
            record.began, record.bytes = now, 0
        record.bytes += count
        return record.bytes <= self.rules.megabytes_per_minute * 1e6

    def may_speak(self, device: str, now: float) -> bool:
        """Whether one more message that makes the coordinator do something is within the device's quota."""
        record, pace = self._record(device), self.rules.messages_per_minute / MINUTE
        record.spent = max(0.0, record.spent - pace * (now - record.spoke))
        record.spoke = now
        if record.spent + 1 > self.rules.messages_per_minute:
            return False
        record.spent += 1
        return True

    def _record(self, device: str) -> _Record:
        if device not in self.records and len(self.records) >= RECORDS:
            del self.records[next(iter(self.records))]  # the oldest
        return self.records.setdefault(device, _Record())
