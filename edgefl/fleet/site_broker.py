"""The broker of a site as a process of ours: Mosquitto with a bridge to the fleet's, until a signal ends it.

It listens on its own socket for the list of the site's members, which the fleet's server tells over the bridge, and
lets Mosquitto read what follows from it. The last list stays on disk: a revoked device is out after a restart too,
though the fleet's broker is not there. SIGHUP makes it read the site's file again.

A device that is put out while it is connected has no rights from then on, and is refused when it comes again.
"""

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from pydantic import ValidationError

from edgefl.base.errors import RunError, WireError
from edgefl.fleet import mosquitto, sites
from edgefl.fleet.broker import HERE, LOG, LOOK, BrokerPlan, how_it_ended, reread, running, unless_torn
from edgefl.fleet.folder import SOCKET, Settings, state_folder
from edgefl.fleet.sites import SiteMembers
from edgefl.system.locks import own
from edgefl.system.service_manager import ServiceManager
from edgefl.system.store import write_atomically
from edgefl.wire.address import UNIX, Address, parse
from edgefl.wire.opening import open_transport
from edgefl.wire.transport import ConnectionMade, Message, Transport, TransportEvent

log = logging.getLogger(__name__)

MEMBERS = "members.json"  # the last list


class SiteBroker:
    """One site on this machine: its file, and the list that is in force."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, sites.read(path)
        self.folder = state_folder() / "sites" / f"{self.file.fleet}.{self.file.name}"
        self.members = self.file.members

    @property
    def settings(self) -> Settings:
        return Settings(fleet=self.file.fleet, hosts=self.file.hosts, port=self.file.port)

    def remember(self) -> None:
        """The list of an earlier life, if it is newer than the file's."""
        try:
            kept = SiteMembers.model_validate_json((self.folder / MEMBERS).read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValidationError) as error:
            log.warning("the list of an earlier life cannot be read why=%s", type(error).__name__)
            return
        if kept.site == self.file.name and kept.number > self.members.number:
            self.members = kept

    def read_again(self) -> bool:
        """Read the file, which may be another one; a list that is newer than the file's stays in force."""
        self.file = sites.read(self.path)
        if self.file.members.number > self.members.number:
            self.members = self.file.members
        return True

    def take(self, payload: bytes) -> bool:
        """Whether this is a list that counts from now on; it is on disk then."""
        listed = sites.newer(self.file, self.members, payload)
        if listed is None:
            return False
        write_atomically(self.folder / MEMBERS, listed.model_dump_json().encode())
        self.members = listed
        return True

    def texts(self, socket: Path, plugin: Path | None) -> dict[str, bytes]:
        """Return what Mosquitto reads, by the names of the files."""
        file, fleet, centre = self.file, self.file.fleet, parse(self.file.centre)
        bridge = mosquitto.Bridge(file.name, centre.host, centre.port)
        texts = {
            mosquitto.CONFIGURATION: mosquitto.configuration(self.settings, HERE, socket, bridge, acl_plugin=plugin),
            mosquitto.COORDINATORS: mosquitto.acl_of_coordinators(fleet),
            mosquitto.ACL: mosquitto.acl_of_devices(fleet, self.members.devices, file.name),
            mosquitto.CA: file.ca,
            mosquitto.CERTIFICATE: file.certificate,
            mosquitto.KEY: file.key,
            mosquitto.REVOKED: self.members.revoked,
            mosquitto.BRIDGE_CERTIFICATE: file.bridge_certificate,
            mosquitto.BRIDGE_KEY: file.bridge_key,
        }
        return {name: text.encode() for name, text in texts.items()}


def serve(path: Path, ready: Callable[[SiteBroker], None]) -> None:
    """Run it until SIGINT or SIGTERM; `ready` is called when it accepts connections."""
    site = SiteBroker(path)
    events: SimpleQueue[int | TransportEvent] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: events.put(number))
    manager = ServiceManager()
    with own(site.folder, remedy="the broker of this site runs already"):
        site.remember()
        remedy = "the site's devices know it by this port, so end what listens there (`ss -ltnp` names it)"
        link = site.folder / SOCKET
        plan = BrokerPlan(site.settings.bind, site.file.port, site.texts, site.folder / LOG, link, remedy)
        with running(plan) as broker:
            line = open_transport(Address(UNIX, str(link)), "members")
            line.start(events.put)
            manager.ready(f"listens on {site.settings.broker}")
            ready(site)
            try:
                while not broker.child.gone.is_set():
                    manager.beat()
                    try:
                        event = events.get(timeout=LOOK)
                    except Empty:
                        continue
                    if event in (signal.SIGINT, signal.SIGTERM):
                        manager.stopping()
                        return
                    if _changes(site, line, event):
                        reread(broker)
                        _say(site, line)
            finally:
                line.close()
            raise RunError(how_it_ended(broker.child))


def _changes(site: SiteBroker, line: Transport, event: int | TransportEvent) -> bool:
    """Whether Mosquitto has to read something else now."""
    fleet, name = site.file.fleet, site.file.name
    match event:
        case signal.SIGHUP:
            return unless_torn(site.read_again) is not None
        case ConnectionMade():
            line.subscribe(sites.list_topic(fleet, name))
            _say(site, line)
        case Message(payload=payload) if payload:
            try:
                return site.take(bytes(payload))
            except WireError as error:
                log.warning("ignored code=%s why=%s", error.code, error)
    return False


def _say(site: SiteBroker, line: Transport) -> None:
    """Publish which list is in force, for the command that revokes."""
    topic = sites.read_topic(site.file.fleet, site.file.name)
    line.publish(topic, str(site.members.number).encode(), retain=True)
