"""When a fleet's devices were last seen, and with which version: written by coordinators, read by `edgefl fleet list`.

{"pi-01": {"at": "2026-01-31T12:00:00Z", "version": "0.1.0"}}
"""

from datetime import datetime

from pydantic import RootModel, ValidationError

from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.members import LIMIT, Record

NAME = "seen.json"


class Sighting(Record):
    """The last time that a device announced itself."""

    at: datetime
    version: str = ""


class Sightings(RootModel[dict[str, Sighting]]):
    """By device."""


def read(folder: FleetFolder) -> dict[str, Sighting]:
    """What is known; nothing, where there is no record or none that can be read."""
    path = folder.path / NAME
    try:
        if path.stat().st_size > LIMIT:
            return {}
        return Sightings.model_validate_json(path.read_bytes()).root
    except (OSError, ValidationError):
        return {}
