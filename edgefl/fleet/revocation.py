"""Put a device out of its fleet: off the list, without rights, and off the line if it is connected at this moment.

The broker ends no connection because of a list. But at the listener for devices a name has one connection: a
client with a certificate of that name takes it over. So the authority makes two certificates that live for minutes. One
is revoked together with the device's own and shows when the broker has read the list; the other one takes over.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.fleet import broker, sites, tokens
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import Issued, clock, key_pem, new_key
from edgefl.system.scratch import Scratch
from edgefl.system.store import write_atomically
from edgefl.wire.address import Address, reachable
from edgefl.wire.opening import admitted, open_transport
from edgefl.wire.tls import Tls
from edgefl.wire.transport import Message, TransportEvent

LASTS = timedelta(minutes=10)  # of the two certificates
PATIENCE = 5.0  # seconds until the broker must have read the list
STEP = 0.1

Outcome: TypeAlias = Literal["out", "broker not running", "still let in"]


def revoke(fleet: FleetAdministration, name: str, reload: Callable[[], bool] | None = None) -> Outcome:
    """Revoke a device, or see to it that one that was revoked is out; `reload` tells the broker to read its files."""
    with Scratch("edgefl-revoke-") as scratch:
        revoked, own = (_certificate(fleet, name, scratch.path / which) for which in ("revoked", "own"))
        tokens.withdraw(fleet, name)  # first: one that is used up before is revoked with the rest
        fleet.revoke(name, clock(), also=(revoked[0],))
        running = (reload or (lambda: broker.reload(fleet.folder)))()
        host = fleet.settings.bind or "127.0.0.1" if running else fleet.settings.broker.host
        address = Address("mqtts", host, fleet.settings.port)
        try:
            reachable(address)
        except ConfigError:
            return "broker not running"
        until = time.monotonic() + PATIENCE
        while _let_in(address, revoked[1]):
            if time.monotonic() > until:
                return "still let in"
            time.sleep(STEP)
        admitted(address, own[1])
    return "out"


def lets_revoked_in(fleet: FleetAdministration, address: Address, now: datetime) -> bool:
    """Whether the broker there accepts what was revoked; tried with a certificate of the same number.

    Where no certificate was revoked there is nothing to try.
    """
    listed = fleet.members.revoked_serials(now)
    names = {one.number: name for name, member in fleet.members.members.items() for one in member.certificates}
    if not listed:
        return False
    serial = max(listed, key=lambda number: listed[number])
    with Scratch("edgefl-revoked-") as scratch:
        return _let_in(address, _certificate(fleet, names[serial], scratch.path / "revoked", serial)[1])


def _certificate(fleet: FleetAdministration, name: str, place: Path, serial: int | None = None) -> tuple[Issued, Tls]:
    key = new_key()
    issued = fleet.authority.client(name, key.public_key(), clock(), LASTS, serial)
    files = Tls(ca=fleet.folder.authority[0], certificate=place.with_suffix(".crt"), key=place.with_suffix(".key"))
    write_atomically(place.with_suffix(".crt"), issued.pem)
    write_atomically(place.with_suffix(".key"), key_pem(key))
    return issued, files


def _let_in(address: Address, files: Tls) -> bool:
    with suppress(ConfigError):
        admitted(address, files)
        return True
    return False


def told_at(fleet: FleetAdministration, site: str, patience: float = PATIENCE) -> bool:
    """Whether the list that is on disk is in force at a site by now; it may be cut off."""
    number, told = fleet.members.changes, SimpleQueue[TransportEvent]()
    line = open_transport(fleet.folder.here, "revoke")
    line.start(told.put)
    line.subscribe(sites.read_topic(fleet.folder.name, site))
    until = time.monotonic() + patience
    try:
        while (left := until - time.monotonic()) > 0:
            with suppress(Empty, ValueError):
                event = told.get(timeout=left)
                if isinstance(event, Message) and int(event.payload) >= number:
                    return True
        return False
    finally:
        line.close()
