"""From a gateway's file to a gateway that runs."""

import logging
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coordinator.durable import identity as coordinator_identity
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.fleet_broker import fleet_of, located
from device_agent.decide.vocabulary import Stopped
from device_agent.durable import identity
from device_agent.durable.broker_addresses import BrokerAddresses
from device_agent.shell.backends import maker
from device_agent.shell.renewal import CertificateRenewal
from device_agent.shell.setup import DeviceIdentity, Limits, Scope
from edgefl.base.errors import ConfigError
from edgefl.fleet.members import MembersFile
from edgefl.job.config import reader
from edgefl.job.config.gateway import GatewayFile
from edgefl.job.config.reader import parse as parse_tables
from edgefl.job.config.schema import RunFile
from edgefl.system import logs
from edgefl.system.background import Threads
from edgefl.system.clock import SystemClock
from edgefl.system.disk import Disk, FolderDisk
from edgefl.system.locks import own
from edgefl.system.reactor import serve
from edgefl.system.service_manager import ServiceManager
from edgefl.wire import exposure
from edgefl.wire.address import parse
from edgefl.wire.first_use import missing_key
from edgefl.wire.opening import open_transport
from edgefl.wire.transport import Transport
from edgefl.wire.wiring import Wiring
from gateway.errand import Errand
from gateway.service import Gateway, SiteSetup

log = logging.getLogger(__name__)

LAST = 2**31 - 2  # a site has as many rounds as it is asked for


class GatewayHost:
    """A gateway in the real world: one queue for both sides, the machine's clock, threads to add up in."""

    def __init__(
        self,
        place: SiteSetup,
        identity: DeviceIdentity,
        transport: Transport,
        disk: Disk,
        *,
        scope: Scope = Scope(),
        limits: Limits = Limits(),
    ) -> None:
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.clock, self.transport, self.manager = SystemClock(), transport, ServiceManager()
        self.background = Threads(self.events.put, "gateway")
        wiring = Wiring(transport, self.clock, self.background, self.events.put)
        self.gateway = Gateway(place, identity, wiring, disk, scope=scope, limits=limits)

    def run(self) -> tuple[int, str]:
        """Serve until it has ended; the exit code and the reason."""
        self.manager.ready(f"gateway '{self.gateway.agent.device}' serves {self.gateway.agent.broker}")
        try:
            serve(self.gateway, self.events, self.clock, self.manager.beat)
        finally:
            self.background.close()
            for one in self.gateway.played.values():
                one.shell.close()
        self.manager.stopping()
        self.transport.flush(2.0)
        self.transport.close()
        return self.gateway.agent.exit or (1, "did not end")

    def stop(self, *_: object) -> None:
        """End cleanly; may be called from any thread, and as a signal handler."""
        self.events.put(Stopped())


def run(path: Path, sets: Sequence[str], *, insecure: bool = False, level: str) -> tuple[int, str]:
    """Serve with the file behind `path` until a signal; the exit code and the reason."""
    logs.set_up(level)
    file = reader.load(GatewayFile, path, sets)
    folder = file.gateway.folder.expanduser() / file.gateway.id
    identity.check(FolderDisk(folder))
    with own(folder):
        host = open_gateway(file, insecure=insecure)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, host.stop)
        return host.run()


def open_gateway(file: GatewayFile, *, insecure: bool = False) -> GatewayHost:
    """The gateway of this file; what is wrong with it is said before anything is connected."""
    me = file.gateway
    folder = me.folder.expanduser() / me.id
    addresses = BrokerAddresses(FolderDisk(folder), [parse(url, "gateway.broker") for url in me.brokers])
    address, shown = addresses()[0], " or ".join(map(str, addresses()))
    for one in addresses.given:
        if missing := missing_key(one, me.coordinator):
            raise ConfigError(str(missing).replace("agent.", "gateway."))
        exposure.check(one, me.tls, "gateway", insecure=insecure)
    site_run = located(_run_file(file, "site", 0))
    where = parse(site_run.broker.url)
    if where.embedded:
        raise ConfigError(
            "broker.url: a gateway needs the broker of its site, 'mqtts://...' or a fleet of this machine"
        )
    at = {(one.host, one.port, me.fleet) for one in addresses()}
    if (where.host, where.port, file.broker.fleet) in at:
        raise ConfigError(
            f"broker.fleet = '{me.fleet}' at {address} is where the coordinator is too: it would ask the devices"
            " itself; give the site's devices a fleet, or a broker, of their own"
        )
    exposure.check(where, site_run.broker.tls, "gateway", insecure=insecure)
    members = fleet_of(site_run)
    keys = coordinator_identity.devices_path(site_run)
    place = SiteSetup(
        run=lambda errand: run_of(file, errand, site_run),
        connect=lambda _: open_transport(where, "gateway", site_run.broker.tls),
        disk=lambda run_key: FolderDisk(folder / "site" / run_key),
        knows=lambda run_key: (folder / "site" / run_key).exists(),
        forget=lambda run_key: shutil.rmtree(folder / "site" / run_key, ignore_errors=True),
        background=lambda put: Threads(put, "site"),
        signer=coordinator_identity.signer(site_run),
        device_keys=lambda: DeviceKeys(keys, file.devices, MembersFile(members.members) if members else None),
        make_model=maker(file.compute),
        fleet=site_run.broker.fleet,
        devices=file.site.devices,
        seal=file.seal,
    )

    log.info("gateway=%s broker=%s site=%s devices=%d", me.id, shown, where, file.site.devices)
    return GatewayHost(
        place,
        DeviceIdentity(
            me.id, me.fleet, "gateway", site=me.site, renewal=CertificateRenewal(me.id, me.tls, SystemClock().wall)
        ),
        open_transport(address, me.id, me.tls, addresses=addresses),
        FolderDisk(folder),
        scope=Scope(broker=shown, addresses=addresses, connect_timeout=me.connect_timeout, coordinator=me.coordinator),
        limits=Limits(limit_mb=me.limit_mb, allowed=file.compute.factories),
    )


def run_of(file: GatewayFile, errand: Errand, located_at: RunFile) -> RunFile:
    """The run of an errand, as the site plays it."""
    own_run = _run_file(file, errand.task.job, errand.item.manifest.seed)
    return own_run.model_copy(update={"broker": located_at.broker})


def _run_file(file: GatewayFile, name: str, seed: int) -> RunFile:
    site = file.site
    tables: dict[str, Any] = {
        "run": {"name": name, "seed": seed, "rounds": LAST},
        "rounds": {"cohort": site.devices, "quorum": site.least, "deadline": site.deadline},
        "broker": file.broker.model_dump(exclude_unset=True),
        "guards": file.guards.model_dump(),
        "devices": file.devices,
    }
    return parse_tables(RunFile, tables, "the gateway's file", environment={})
