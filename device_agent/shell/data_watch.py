"""Data that cannot be used are looked at again: with backoff, in the background, until they are good."""

from dataclasses import dataclass

from device_agent.shell.samples import Samples
from edgefl.system.background import Background, Put
from edgefl.wire.reconnect import Pause

FIRST, LONGEST = 2.0, 60.0  # seconds between two looks
SLOW = 600.0  # seconds that reading may take; a look that is not over by then was cancelled with a training


@dataclass(frozen=True, slots=True)
class DataLooked:
    """The data were looked at again, whatever was seen."""


class DataWatch:
    """Looks at the samples of one device while there is something wrong with them."""

    def __init__(self, device: str, samples: Samples, background: Background) -> None:
        self.samples, self.background = samples, background
        self.pause = Pause(device, FIRST, LONGEST)
        self.looking_until: float | None = None  # a look is in the background until then at most

    def deadline(self, now: float) -> float | None:
        """When it wants to be woken: never while the data are good."""
        if self.looking_until is not None:
            return self.looking_until
        if not self.samples.trouble:
            return None
        self.pause.begin(now)
        return self.pause.until

    def woken(self, now: float) -> None:
        """Have the data looked at in the background if it is time; `DataLooked` tells when that is done."""
        if self.looking_until is not None and now >= self.looking_until:
            self.looking_until = None
        if self.looking_until is None and self.pause.due(now):
            self.looking_until = now + SLOW
            self.background.start(self._look)

    def looked(self) -> None:
        """Take in that the look is over."""
        self.looking_until = None
        if not self.samples.trouble:
            self.pause.confirmed()

    def _look(self, put: Put) -> None:
        self.samples.look()
        put(DataLooked())
