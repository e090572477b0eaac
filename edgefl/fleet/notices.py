"""What a fleet has to tell its members, whichever run they are heard in: where the broker is, and to renew now.

Coordinators look here now and then, and say what is due to devices that are there. A device says in its presence which
addresses it knows, and a new certificate uses up its permit: so nothing is remembered here but when it was last said.
"""

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import FleetFolder, Settings
from edgefl.fleet.members import Member, MembersFile
from edgefl.wire.messages import Addresses, Renew

log = logging.getLogger(__name__)

AGAIN = 600.0  # seconds until a device that does not follow is told again

Notice: TypeAlias = Addresses | Renew


def notices(settings: Settings, member: Member, moves: int, now: datetime, renew: Renew) -> tuple[Notice, ...]:
    """Return what a member that knows these addresses has to be told; `renew` is how the speaker says that."""
    if member.revoked is not None or member.hosts:
        return ()
    moved = _moved(settings, moves) if not member.site else None  # a site's broker stays where it is
    permitted = member.renew_until is not None and now < member.renew_until
    return (*([moved] if moved else []), *([renew] if permitted else []))


def _moved(settings: Settings, known: int) -> Addresses | None:
    if settings.moves <= known:
        return None
    return Addresses(number=settings.moves, brokers=tuple(map(str, settings.brokers)))


class Notices:
    """Of one fleet, on the machine where its folder is."""

    def __init__(self, folder: FleetFolder, members: MembersFile) -> None:
        self.folder, self.members = folder, members
        self._stamp: tuple[int, int] | None = None
        self._settings: Settings | None = None
        self._told: dict[tuple[str, str], float] = {}

    def due(self, present: Iterable[tuple[str, int]], now: float, renew: Renew) -> Iterator[tuple[str, Notice]]:
        """Yield what has to be said now to devices that are there; each comes with the addresses that it knows."""
        settings, members = self._read(), self.members.now().members
        if settings is None or not (settings.moves or any(one.renew_until for one in members.values())):
            return
        wall = datetime.fromtimestamp(self.members.wall(), timezone.utc)
        for device, moves in present:
            if (member := members.get(device)) is None:
                continue
            for notice in notices(settings, member, moves, wall, renew):
                last = self._told.get((device, notice.kind))
                if last is None or now - last >= AGAIN:
                    self._told[device, notice.kind] = now
                    yield device, notice

    def _read(self) -> Settings | None:
        """Return the settings as they are, or as they were when they could last be read."""
        try:
            status = self.folder.settings.stat()
            stamp = status.st_mtime_ns, status.st_ino
        except OSError:
            return self._settings
        if stamp != self._stamp:
            self._stamp = stamp
            self._told = {key: at for key, at in self._told.items() if key[1] != "addresses"}
            try:
                self._settings = self.folder.read_settings()
            except ConfigError as error:
                log.warning("the settings of the fleet are as they were before: %s", error)
        return self._settings
