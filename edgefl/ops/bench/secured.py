"""A secured fleet on loopback and its Mosquitto, for as long as a bench lasts; nothing of it is the operator's own."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.broker import plan_of, running
from edgefl.fleet.kit import Kit
from edgefl.system.environment import environment
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
    with environment(XDG_STATE_HOME=str(folder)):  # not among the fleets of the user who runs the bench
        fleet = FleetAdministration.new(NAME, [HOST], free_port(HOST, 0), clock())
        kits = {device: fleet.add(device, clock()) for device in devices}
        with running(plan_of(fleet)) as broker:
            yield SecuredFleet(fleet, kits, broker.child)
