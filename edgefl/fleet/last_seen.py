"""The inventory of a fleet: every device that was ever seen, when, why it was last away, and which runs it served.

    {"pi-01": {"at": "2026-01-31T12:00:00Z", "version": "0.1.0", "first": "2025-12-01T08:00:00Z", "host": "pi-01",
               "reason": "declined round 3: too warm", "runs": ["sensors"]}}

Coordinators of all runs write it, one after the other; it outlives them. `edgefl fleet list` reads it, and
`edgefl fleet forget` takes a device out, which is written again when it is seen again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic import ConfigDict, RootModel, ValidationError

from edgefl.base.errors import StoreError
from edgefl.fleet.members import LIMIT, FleetRecord
from edgefl.system import portable
from edgefl.system.store import make_folder, write_atomically

RUNS = 20  # of which a device's last ones are kept
DEVICES = 20_000  # beyond them, those that were not seen for longest are forgotten


class Sighting(FleetRecord):
    """What is known of a device; `at` is when it was last heard, `reason` why it is not there or not at work."""

    model_config = ConfigDict(extra="ignore")  # a later version may know more

    at: datetime
    version: str = ""
    first: datetime | None = None
    host: str = ""
    reason: str = ""
    since: datetime | None = None  # the reason holds; it is not there, or something is wrong with it
    runs: tuple[str, ...] = ()  # the last one last
    arch: str = ""  # what the device said of itself when it last joined a run: see edgefl/base/device_labels.py
    memory_mb: int | None = None
    backend: str = ""
    samples: int | None = None

    def followed_by(self, later: "Sighting") -> "Sighting":
        """The same device, seen again. A run that is for other devices knows nothing of why this one is away."""
        if not later.runs:
            later = later.model_copy(update={"reason": self.reason, "since": self.since})
        runs = tuple(dict.fromkeys([*(run for run in self.runs if run not in later.runs), *later.runs]))[-RUNS:]
        first = self.first or self.at
        lasts = self.since is not None and later.since is not None and later.reason == self.reason
        return later.model_copy(
            update={
                "runs": runs,
                "first": min(first, later.first or later.at),
                "version": later.version or self.version,
                "host": later.host or self.host,
                "arch": later.arch or self.arch,
                "memory_mb": self.memory_mb if later.memory_mb is None else later.memory_mb,
                "backend": later.backend or self.backend,
                "samples": self.samples if later.samples is None else later.samples,
                "since": self.since if lasts else later.since,
            }
        )


class _Sightings(RootModel[dict[str, Sighting]]):
    """By device."""


def write(file: Path, seen: Mapping[str, Sighting]) -> None:
    """What is new; runs of one fleet share the file, and who writes adds to what others wrote."""
    with _changing(file):
        known = read(file)
        for device, sighting in seen.items():
            before = known.get(device)
            if before is None:
                known[device] = sighting
            elif before.at <= sighting.at:
                known[device] = before.followed_by(sighting)
            else:
                known[device] = sighting.followed_by(before)
        kept = dict(sorted(known.items(), key=lambda item: item[1].at)[-DEVICES:])
        _save(file, kept)


def forget(file: Path, device: str) -> bool:
    """Whether the device was known; it is no more."""
    if not file.exists():
        return False
    with _changing(file):
        known = read(file)
        if known.pop(device, None) is None:
            return False
        _save(file, known)
        return True


def read(file: Path) -> dict[str, Sighting]:
    """What is known; nothing, where there is no record or none that can be read."""
    try:
        if file.stat().st_size > LIMIT:
            return {}
        return _Sightings.model_validate_json(file.read_bytes()).root
    except (OSError, ValidationError):
        return {}


def _save(file: Path, known: Mapping[str, Sighting]) -> None:
    write_atomically(file, _Sightings(dict(known)).model_dump_json(indent=1).encode())


@contextmanager
def _changing(file: Path) -> Iterator[None]:
    """Hold the lock of the file while the block runs; other processes that change it wait."""
    try:
        make_folder(file.parent)
        lock = file.with_name(f".{file.name}.lock").open("a+")
    except OSError as error:
        raise StoreError(f"{file}: cannot be changed ({error.strerror})") from None
    with lock:
        portable.close_to_others(lock.fileno())
        portable.lock(lock.fileno())
        yield
