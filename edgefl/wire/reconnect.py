"""When to connect again: at once where a few devices share a broker, spread out where a thousand do.

A broker that restarts loses all its devices in the same moment, and a delay that only doubles brings them all back in
the same moment too. So the coordinator says over how many seconds its fleet should spread, and every device takes its
own place in them. Attempts that fail are retried ever more slowly, up to a cap, by then out of step with each other.
"""

import zlib
from dataclasses import dataclass

FIRST_DELAY, LONGEST_DELAY = 0.25, 10.0  # seconds
PER_SECOND = 100  # devices that may come back: a small server makes about as many TLS handshakes
LONGEST_SPREAD = 60.0  # seconds, however large the fleet


def spread(devices: int) -> float:
    """Seconds over which a fleet of this size should come back."""
    return min(LONGEST_SPREAD, devices / PER_SECOND)


def jitter(who: str, number: int) -> float:
    """A number in [0, 1) that differs between devices and between attempts, and needs no random state."""
    return zlib.crc32(f"{who}/{number}".encode()) / 2**32


def backoff(who: str, times: int, first: float, longest: float) -> float:
    """Return seconds to wait after these failures: ever longer, up to a cap, out of step with other clients."""
    return min(longest, first * 2.0 ** min(times - 1, 16)) * (0.5 + 0.5 * jitter(who, times))


@dataclass(slots=True)
class Reconnect:
    """One client's patience."""

    who: str
    spread: float = 0.0  # seconds, as the coordinator said
    _failed: int = 0  # attempts since the last connection that held
    _lost: int = 0  # connections so far

    def lost(self, lasted: float) -> float:
        """Return seconds to wait after a connection that was made and lasted for `lasted` seconds."""
        self._failed = 1 if lasted > LONGEST_DELAY else self._failed + 1
        self._lost += 1
        return self._backoff() + self.spread * jitter(self.who, -self._lost)

    def failed(self) -> float:
        """Seconds to wait after an attempt that made no connection."""
        self._failed += 1
        return self._backoff()

    def _backoff(self) -> float:
        return backoff(self.who, self._failed, FIRST_DELAY, LONGEST_DELAY)


@dataclass(slots=True)
class Pause:
    """When a client that was turned away, or not heard, comes again."""

    who: str
    first: float = 2.0  # seconds
    longest: float = 300.0
    until: float | None = None  # on the clock of the caller
    _times: int = 0

    def begin(self, now: float) -> None:
        """Wait, unless that is already going on."""
        if self.until is None:
            self._times += 1
            self.until = now + backoff(self.who, self._times, self.first, self.longest)

    def due(self, now: float) -> bool:
        """Whether the wait has just ended."""
        if self.until is None or self.until > now:
            return False
        self.until = None
        return True

    def over(self) -> None:
        """All is well again."""
        self._times = 0

    def confirmed(self) -> None:
        """It was heard: no need to come again."""
        self.until = None
        self.over()
