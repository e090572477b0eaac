"""What time it is. Code that needs the time is handed a clock; no other code asks the system."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock on the wall and a stop-watch."""

    def now(self) -> float:
        """Seconds that only grow; when they began means nothing."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, which may jump when the clock is set."""
        ...


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
