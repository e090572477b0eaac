"""When a fleet's devices were last seen, and with which version: written by coordinators, read by `edgefl fleet list`.

{"pi-01": {"at": "2026-01-31T12:00:00Z", "version": "0.1.0"}}
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import RootModel, ValidationError

from edgefl.fleet.members import LIMIT, Record
from edgefl.system.store import write_atomically

NAME = "seen.json"


class Sighting(Record):
    """The last time that a device announced itself."""

    at: datetime
    version: str = ""


class _Sightings(RootModel[dict[str, Sighting]]):
    """By device."""


def write(folder: Path, seen: Mapping[str, Sighting]) -> None:
    """All that is known; runs of one fleet share the file, and who writes adds what others wrote."""
    known = read(folder)
    for device, sighting in seen.items():
        if device not in known or known[device].at <= sighting.at:
            known[device] = sighting
    write_atomically(folder / NAME, _Sightings(known).model_dump_json(indent=1).encode())


def read(folder: Path) -> dict[str, Sighting]:
    """What is known; nothing, where there is no record or none that can be read."""
    path = folder / NAME
    try:
        if path.stat().st_size > LIMIT:
            return {}
        return _Sightings.model_validate_json(path.read_bytes()).root
    except (OSError, ValidationError):
        return {}
