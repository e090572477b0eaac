"""A secured fleet on loopback and its Mosquitto, for as long as a bench lasts; nothing of it is the operator's own."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.broker import plan_of, running
from edgefl.fleet.kit import Kit
from edgefl.system.processes import Child
from edgefl.wire.address import Address
from edgefl.wire.broker import free_port

NAME = "bench"
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SecuredFleet:
    """The fleet, what its devices were given, and its running broker."""

    fleet: FleetAdministration
    kits: Mapping[str, Kit]
    broker: Child

    @property
    def address(self) -> Address:
        """As its devices reach the broker."""
        return self.fleet.settings.broker


@contextmanager
def secured_fleet(folder: Path, devices: Iterable[str]) -> Iterator[SecuredFleet]:
    """A fleet of these devices whose files are in this folder."""
    with _state_in(folder):
        fleet = FleetAdministration.new(NAME, [HOST], free_port(HOST, 0), clock())
        kits = {device: fleet.add(device, clock()) for device in devices}
        with running(plan_of(fleet)) as broker:
            yield SecuredFleet(fleet, kits, broker.child)


@contextmanager
def _state_in(folder: Path) -> Iterator[None]:
    """Fleets are made here, not among those of the user who runs the bench."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
