"""Whose certificate ends soon, in one line for people: `edgefl status` and `edgefl fleet list` end with it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from edgefl.base.errors import ConfigError
from edgefl.fleet import members
from edgefl.fleet.folder import FleetFolder, Settings, state_folder
from edgefl.fleet.members import Members

SOON = timedelta(days=30)
NAMED = 10  # devices that are named in the line


class EndingCertificate(NamedTuple):
    """A device whose certificate ends soon, or has ended."""

    device: str
    at: datetime


def expiring(listed: Members, settings: Settings, now: datetime) -> list[EndingCertificate]:
    """Return members whose certificate ends within 30 days; those that are due, where certificates last less long."""
    before = now + min(SOON, settings.lifetime / 3)
    devices = ((name, member.expires) for name, member in listed.active().items() if not member.hosts)
    ends = (EndingCertificate(name, at) for name, at in devices if at is not None and at < before)
    return sorted(ends, key=lambda one: one.at)


def line(folder: FleetFolder, now: datetime) -> str:
    """Say how many devices of a fleet are soon shut out, which, and what to do; empty if none is."""
    settings = folder.read_settings()
    due = expiring(members.read(folder.members), settings, now)
    if not due:
        return ""
    names = ", ".join(f"{one.device} {'ended' if one.at <= now else 'ends'} {one.at:%Y-%m-%d}" for one in due[:NAMED])
    more = f" and {len(due) - NAMED} more" if len(due) > NAMED else ""
    days = min(SOON, settings.lifetime / 3).days
    which = "" if folder.name == "default" else f" --fleet {folder.name}"
    return (
        f"fleet '{folder.name}': {len(due)} certificate{'s end' if len(due) > 1 else ' ends'} within {days} days or"
        f" ended ({names}{more}): a run, or `edgefl fleet listen{which}`, renews them;"
        f" `edgefl fleet renew{which} NAME` also after {settings.grace_days} days"
    )


def lines(now: datetime) -> Iterator[str]:
    """The same for every fleet of this machine."""
    for path in sorted((state_folder() / "fleets").glob("*/fleet.json")):
        try:
            told = line(FleetFolder(path.parent.name), now)
        except ConfigError as error:
            told = str(error)
        if told:
            yield told
