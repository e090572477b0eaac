"""Who was seen in a run, for the inventory of its fleet: one more reader of the facts."""

import logging
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edgefl import events
from edgefl.errors import StoreError
from edgefl.events import Fact
from edgefl.fleet import sightings
from edgefl.fleet.sightings import Sighting
from edgefl.overview.words import about, cut

log = logging.getLogger(__name__)

EVERY = 60.0  # seconds between two writes, unless somebody comes for the first time


@dataclass(slots=True)
class _Seen:
    """A device of this run."""

    at: float
    reason: str = ""
    version: str = ""
    host: str = ""


class Sightings:
    """Writes them down once in a while. No run depends on it: what cannot be written is only logged."""

    def __init__(self, file: Path, run: str) -> None:
        self.file, self.run = file, run
        self._seen: dict[str, _Seen] = {}
        self._news: set[str] = set()  # not written yet; the rest is not written again, somebody may have forgotten it
        self._written_at = 0.0

    def __call__(self, fact: Fact) -> None:
        match fact:
            case events.Joined(device=device, version=version, host=host):
                if device not in self._seen:  # one that comes and goes is not written each time
                    self._written_at = 0.0
                self._seen[device] = _Seen(fact.at, version=version, host=host)
            case events.Answered(device=device):
                self._heard(device, fact, "")
            case events.Declined(device=device) | events.Busy(device=device):
                self._heard(device, fact, cut(about(fact, device)))
            case events.Lost(device=device) | events.Quarantined(device=device) if device in self._seen:
                self._seen[device].reason = cut(about(fact, device))
            case _:
                return
        self._news.add(device)
        if fact.at - self._written_at >= EVERY:
            self._written_at = fact.at
            self.write()

    def write(self) -> None:
        """What was seen since the last time."""
        news = {device: self._sighting(self._seen[device]) for device in self._news}
        if not news:
            return
        try:
            sightings.write(self.file, news)
        except StoreError as error:
            log.warning("who was seen is not written why=%s", error)
        else:
            self._news.clear()

    def _heard(self, device: str, fact: Fact, reason: str) -> None:
        seen = self._seen.setdefault(device, _Seen(fact.at))
        seen.at, seen.reason = fact.at, reason

    def _sighting(self, seen: _Seen) -> Sighting:
        at = datetime.fromtimestamp(seen.at, timezone.utc)
        return Sighting(at=at, version=seen.version, host=seen.host, reason=seen.reason, runs=(self.run,))
