"""Guards at the door: numbers that cannot be added up, and devices that do not stop sending what cannot be used."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from edgefl.algorithms.base import Update
from edgefl.config import Guards
from edgefl.divergence import exploded
from edgefl.errors import WireError

MINUTE = 60.0
RECORDS = 20_000  # devices whose behaviour is remembered
LARGEST = 1e30  # of the numbers beside an update: their squares can be added up


@dataclass(slots=True)
class _Record:
    strikes: deque[float] = field(default_factory=deque)
    until: float = 0.0  # in quarantine
    began: float = 0.0  # of the minute that is being counted
    bytes: int = 0
    spent: float = 0.0  # of the messages it may send, made good with time
    spoke: float = 0.0


@dataclass(slots=True)
class Guard:
    """What is known about the behaviour of each device."""

    rules: Guards
    records: dict[str, _Record] = field(default_factory=dict)

    def check(self, device: str, update: Update, model: float) -> None:
        """Refuse numbers that would overflow; `model` is the length of the model itself.

        Whatever else is too much is bounded when it is merged, by what others sent: nothing is learned here.
        """
        if absurd := exploded(update.delta, model):
            raise WireError("update.norm", f"device '{device}': {absurd}")
        beside = {name: float(np.abs(array).max(initial=0)) for name, array in update.extra.items()}
        for name, largest in beside.items():
            if largest > LARGEST:
                raise WireError("update.norm", f"device '{device}': '{name}' has a number of {largest:.3g}")

    def strike(self, device: str, now: float) -> bool:
        """One more thing that could not be used; True when the device goes into quarantine for it."""
        record = self._record(device)
        record.strikes.append(now)
        while record.strikes and record.strikes[0] < now - self.rules.quarantine_seconds:
            record.strikes.popleft()
        if len(record.strikes) < self.rules.strikes or now < record.until:
            return False
        record.until = now + self.rules.quarantine_seconds
        record.strikes.clear()
        return True

    def quarantined(self, device: str, now: float) -> bool:
        record = self.records.get(device)
        return record is not None and now < record.until

    def released(self, now: float) -> list[str]:
        """Devices whose quarantine has just ended."""
        free = [device for device, record in self.records.items() if 0 < record.until <= now]
        for device in free:
            self.records[device].until = 0.0
        return free

    def allows(self, device: str, count: int, now: float) -> bool:
        """Whether so many more bytes are within the device's quota."""
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
            free = (known for known, record in self.records.items() if not record.until)
            del self.records[next(free, next(iter(self.records)))]  # the oldest; of those in quarantine only if all are
        return self.records.setdefault(device, _Record())
