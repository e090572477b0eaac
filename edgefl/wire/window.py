"""What is on its way to the broker and not acknowledged: no more than both sides want, and how fast it gets there."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

BYTES = 2 << 20  # on their way at most, unless it is one message; the line is busy with them, and the next word waits
TELLING = 100 << 10  # bytes that must have gone in one stretch to say something about the line

T = TypeVar("T")


@dataclass(slots=True)
class SendWindow(Generic[T]):
    """Of one connection. `speed` is bytes per second of the last stretch in which there was much to send."""

    room: int  # messages
    speed: float = 0.0  # nothing is known: a line that has just broken may be slow
    _flying: dict[int, tuple[T, int]] = field(default_factory=dict)  # by number, with their bytes
    _bytes: int = 0
    _began: float = 0.0  # when something was on its way after nothing was
    _gone: int = 0  # bytes since then

    @property
    def open(self) -> bool:
        """Whether one more message may go."""
        return len(self._flying) < self.room and (self._bytes < BYTES or not self._flying)

    def sent(self, number: int, item: T, size: int, now: float) -> None:
        """One more is on its way."""
        if not self._flying:
            self._began, self._gone = now, 0
        self._flying[number] = item, size
        self._bytes += size

    def acknowledged(self, number: int, now: float) -> T | None:
        """The one that has arrived; None: it was none of these."""
        if number not in self._flying:
            return None
        item, size = self._flying.pop(number)
        self._bytes -= size
        self._gone += size
        if not self._flying and self._gone >= TELLING:
            self.speed = self._gone / max(now - self._began, 1e-6)
        return item

    def unsettled(self) -> list[T]:
        """What is still on its way, the oldest first."""
        return [item for item, _ in self._flying.values()]
