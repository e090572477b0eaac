"""Data are looked at in the background: with backoff while they cannot be used, seldom while they can.

A device that is asked for nothing so notices that its data have broken. It reads them only if they have changed.
"""

from dataclasses import dataclass

from device_agent.shell.samples import Samples
from edgefl.system.background import Background, Put
from edgefl.system.clock import Clock
from edgefl.wire.reconnect import Pause

FIRST, LONGEST = 2.0, 60.0  # seconds between two looks at data that cannot be used
CALM = 60.0  # seconds at least between two looks at data that can
SPARED = 20  # times as long as a look took, none follows while the data are good: a file may grow all the time
SLOW = 600.0  # seconds that reading may take; a look that is not over by then was cancelled with a training


@dataclass(frozen=True, slots=True)
class DataChecked:
    """The data were looked at again, whatever was seen."""

    seconds: float = 0.0  # that it took


class DataWatch:
    """Looks at the samples of one device between its tasks."""

    def __init__(self, device: str, samples: Samples, background: Background, clock: Clock) -> None:
        self.samples, self.background, self.clock = samples, background, clock
        self.pause = Pause(device, FIRST, LONGEST)
        self.looking_until: float | None = None  # a look is in the background until then at most
        self.calm_until: float | None = None  # when data that are good are looked at again

    def deadline(self, now: float) -> float | None:
        """When it wants to be woken: never for good data of which nothing tells, without reading, that they changed."""
        if self.looking_until is not None:
            return self.looking_until
        if self.samples.trouble:
            self.pause.begin(now)
            return self.pause.until
        if self.samples.watched and self.calm_until is None:
            self.calm_until = now + CALM
        return self.calm_until

    def woken(self, now: float) -> None:
        """Have the data looked at in the background if it is time; `DataChecked` tells when that is done."""
        if self.looking_until is not None and now >= self.looking_until:
            self.looking_until = None
        calm_over = self.calm_until is not None and now >= self.calm_until
        if self.looking_until is None and (self.pause.due(now) or calm_over):
            self.looking_until, self.calm_until = now + SLOW, None
            self.background.start(self._look)

    def looked(self, look: DataChecked) -> None:
        """Take in that the look is over."""
        self.looking_until = None
        if not self.samples.trouble:
            self.pause.confirmed()
            if self.samples.watched:
                self.calm_until = self.clock.now() + max(CALM, SPARED * look.seconds)

    def _look(self, put: Put) -> None:
        began = self.clock.now()
        self.samples.look()
        put(DataChecked(self.clock.now() - began))
