"""Who is known in a fleet: its members, and every other device that was ever seen. For `edgefl fleet list`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from edgefl.base.device_labels import Properties, known_names, values_of
from edgefl.base.where import parse
from edgefl.fleet import last_seen, members
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.last_seen import Sighting
from edgefl.fleet.members import Member, ended_remedy


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A device. Without a key it is no member: others know it, or a fleet without identities does."""

    name: str
    key: str | None
    expires: datetime | None
    revoked: datetime | None
    seen: datetime | None
    first: datetime | None
    version: str
    host: str
    runs: tuple[str, ...]
    reason: str
    since: datetime | None  # the reason holds
    labels: Mapping[str, str] = field(default_factory=dict)  # that its operator gave it
    properties: Properties = field(default_factory=Properties)  # that it said of itself when it last joined a run

    def as_json(self) -> dict[str, Any]:
        """Times with their zone."""
        moments = {key: value for key, value in asdict(self).items() if isinstance(value, datetime)}
        return {**asdict(self), **{key: value.astimezone().isoformat() for key, value in moments.items()}}


def known(folder: FleetFolder, now: datetime | None = None) -> list[KnownDevice]:
    """Return all devices, in the order of their names."""
    at = now or datetime.now(timezone.utc)
    seen = last_seen.read(folder.seen)
    if not folder.exists() and not seen:
        folder.read_settings()  # says that there is no such fleet, and what makes one
    listed = members.read(folder.members).members if folder.exists() else {}
    return [_known(name, listed.get(name), seen.get(name), at) for name in sorted({*listed, *seen})]


def matching(rows: Sequence[KnownDevice], where: str) -> list[KnownDevice]:
    """Return the devices that an expression means; raise `ConfigError` if it names a label that no device has."""
    expression = parse(where, "--where")
    expression.check_names(known_names(row.labels for row in rows), "--where")
    return [row for row in rows if expression.matches(values_of(row.name, row.labels, row.properties))]


def _known(name: str, member: Member | None, sighting: Sighting | None, now: datetime) -> KnownDevice:
    reason, since = (sighting.reason, sighting.since) if sighting else ("", None)
    if member and member.revoked is None and member.expires is not None and member.expires <= now:
        reason = f"its certificate has ended: {ended_remedy(name, member)}"
        since = member.expires
    elif member and member.revoked is None and not member.hosts and sighting is None:
        reason = "no run has seen it"
    return KnownDevice(
        name,
        member.key if member else None,
        member.expires if member else None,
        member.revoked if member else None,
        sighting.at if sighting else None,
        (sighting.first or sighting.at) if sighting else None,
        sighting.version if sighting else "",
        sighting.host if sighting else "",
        sighting.runs if sighting else (),
        reason,
        since,
        member.known_as if member else {},
        _measured(sighting) if sighting else Properties(),
    )


def _measured(sighting: Sighting) -> Properties:
    return Properties(sighting.arch, sighting.memory_mb, sighting.version, sighting.backend, sighting.samples)
