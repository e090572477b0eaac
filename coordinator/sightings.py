"""When each device of a fleet was last seen, for `edgefl fleet list`: one more reader of the facts."""

import logging
from datetime import datetime, timezone
from pathlib import Path

from edgefl import events
from edgefl.errors import StoreError
from edgefl.events import Fact
from edgefl.fleet import sightings
from edgefl.fleet.sightings import Sighting

log = logging.getLogger(__name__)

EVERY = 60.0  # seconds between two writes, unless somebody comes for the first time


class Sightings:
    """Writes them down once in a while. No run depends on it: what cannot be written is only logged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, Sighting] = {}
        self._versions: dict[str, str] = {}
        self._written_at = 0.0

    def __call__(self, fact: Fact) -> None:
        match fact:
            case events.Joined(device=device, version=version):
                self._versions[device] = version
                if device not in self._seen:  # one that comes and goes is not written each time
                    self._written_at = 0.0
            case events.Answered(device=device) | events.Declined(device=device) | events.Busy(device=device):
                pass
            case _:
                return
        at = datetime.fromtimestamp(fact.at, timezone.utc)
        self._seen[device] = Sighting(at=at, version=self._versions.get(device, ""))
        if fact.at - self._written_at >= EVERY:
            self._written_at = fact.at
            self.write()

    def write(self) -> None:
        """What was seen until now."""
        try:
            sightings.write(self.folder, self._seen)
        except StoreError as error:
            log.warning("who was seen is not written why=%s", error)
