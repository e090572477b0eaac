"""From a server's file to a server that runs: brokers, enrolment, fleets, coordinators, page.

main thread      turns of `Server`; signals
broker-NAME      looks after the fleet's Mosquitto, starts it again if it ends
enrolment-NAME   lets devices in
page             HTTP
"""

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coordinator.durable import journal
from coordinator.shell import known_runs
from edgefl.base.errors import ConfigError, EdgeflError, StoreError
from edgefl.base.events import Fact as DeviceFact
from edgefl.fleet import broker, enrolment
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog, Deed
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.members import MembersFile
from edgefl.server import alert_channels
from edgefl.server import folder as places
from edgefl.server.decide.vocabulary import Fact, RequestRefused, RunChanged, ScheduleChanged, Submission
from edgefl.server.http.queue_feed import QueueFeed
from edgefl.server.http.web import Web
from edgefl.server.people import People
from edgefl.server.run_stories import RunStories
from edgefl.server.server_file import ServerFile
from edgefl.server.shell.alerts import AlertEquipment
from edgefl.server.shell.coordinators import CoordinatorProcesses
from edgefl.server.shell.fleet import FleetService
from edgefl.server.shell.service import OfAlerts, OfFleet, Server, ServerCall, ServerStopped, Surroundings
from edgefl.system.background import Threads
from edgefl.system.clock import SystemClock
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.system.service_manager import ServiceManager
from edgefl.system.turns import Turns
from edgefl.watch.fleet_inventory import LastSeenWriter
from edgefl.watch.overview.overview import Overview
from edgefl.watch.page.feed import Feed
from edgefl.wire import key_file
from edgefl.wire.opening import open_transport
from edgefl.wire.signed import life_number
from edgefl.wire.wiring import Wiring

log = logging.getLogger(__name__)

T = TypeVar("T")
LIFE = "life"  # the file with the number of the last start
AGAIN = 5.0  # seconds before a broker that has ended is started again
PATIENCE = 30.0  # seconds that a caller waits for the server's turn


class Host:
    """A server in the real world; `ask` is how other threads reach it."""

    def __init__(self, file: ServerFile, manager: ServiceManager) -> None:
        self.file, self.clock = file, SystemClock()
        self.turns = Turns(self.clock, manager.beat, manager.every)
        self.folder = places.folder()
        self.feeds = {name: Feed(Overview()) for name in file.server.fleets}
        self.inventories = {name: LastSeenWriter(FleetFolder(name).seen) for name in file.server.fleets}
        self.coordinators = CoordinatorProcesses(self.folder, self.turns.put)
        self.queue = QueueFeed(self)
        self.audit = AuditLog.opened(self.folder)
        self.people = People(self.folder, file.proxy.as_people())
        around = Surroundings(
            clock=self.clock,
            disk=FolderDisk(self.folder),
            background=Threads(self.turns.put, "server"),
            put=self.turns.put,
            coordinators=self.coordinators,
            delete=delete_run,
            tell=self._tell,
            alerts=self._alerts(),
        )
        fleets = {name: self._fleet(name) for name in file.server.fleets}
        self.server = Server(around, fleets, at_once=file.server.at_once)

    def ask(self, call: Callable[[Server], T]) -> T:
        """Have this done in the server's turn, from any thread but its own; raise what it raises."""
        reply: Future[T] = Future()
        self.turns.put(ServerCall(call, reply))
        return reply.result(PATIENCE)

    def run(self) -> None:
        """Serve until it is stopped."""
        try:
            self.turns.serve(self.server)
        finally:
            self.coordinators.close()
            for inventory in self.inventories.values():
                inventory.write()

    def stop(self, *_: object) -> None:
        """End cleanly; may be called as a signal handler."""
        self.turns.post(ServerStopped())

    def _fleet(self, name: str) -> FleetService:
        fleet = FleetFolder(name)
        lifetime = fleet.read_settings().lifetime.total_seconds()
        put = partial(_put_of_fleet, self.turns.put, name)
        transport = open_transport(fleet.here, "server")
        wiring = Wiring(transport, self.clock, Threads(put, f"fleet-{name}"), put)
        signer = key_file.opened(
            fleet.signing_key, "the coordinator's", elsewhere="let this user read it", lost="give devices new kits"
        )
        members = MembersFile(fleet.members)
        life = _next_life(FolderDisk(self.folder), self.clock.wall())
        return FleetService(name, wiring, members, signer, self._tell_of_fleet, life=life, lifetime=lifetime)

    def _alerts(self) -> AlertEquipment:
        settings = self.file.alerts
        channels = alert_channels.channels(settings)
        return AlertEquipment(
            settings.as_rules(tuple(channels)),
            channels,
            looks=Threads(self._put_of_alerts, "alerts"),
            deliveries={name: Threads(self._put_of_alerts, f"alerts-{name}") for name in channels},
            look=RunStories(self.folder).look,
        )

    def _put_of_alerts(self, event: Any) -> None:
        self.turns.put(OfAlerts(event))

    def _tell_of_fleet(self, fleet: str, fact: DeviceFact) -> None:
        self.feeds[fleet].tell(fact)
        self.inventories[fleet](fact)
        if self.server.alerts is not None:
            self.server.alerts.hear(fleet, fact)

    def log_of(self, run: str) -> Path:
        """Where a run's coordinator writes its log."""
        return self.coordinators.log(run)

    def _tell(self, sequence: int, at: float, fact: Fact) -> None:
        """Write down what became of a run or a schedule: what a person wanted is written down by the API."""
        self.queue.changed()
        try:
            self.audit.write(deed_of(sequence, fact), at)
        except StoreError as error:  # the fact stands in the queue's own file, and is told again
            log.warning("not in the audit log fact=%s why=%s", fact, error)


def serve(file: ServerFile, ready: Callable[[Host, Web], None]) -> None:
    """Run a server until SIGINT or SIGTERM; SIGHUP makes the brokers read their files again."""
    manager = ServiceManager()
    with own(places.folder(), remedy="a server of this operator runs already"), ExitStack() as until_done:
        over = threading.Event()
        reloads = {name: threading.Event() for name in file.server.fleets}
        until_done.callback(over.set)
        for name in file.server.fleets:
            if file.server.broker:
                until_done.enter_context(_broker(name, over, reloads[name]))
            if file.server.enrolment:
                until_done.enter_context(_enrolment(name, over, reloads[name]))
        host = Host(file, manager)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, host.stop)
        signal.signal(signal.SIGHUP, partial(_set_all, tuple(reloads.values())))
        web = Web(host, file.page)
        until_done.callback(web.close)
        places.announce(web.here(file.server.fleets))
        manager.ready(f"serves {', '.join(file.server.fleets)}")
        ready(host, web)
        with manager.loop():
            host.run()


def _next_life(disk: FolderDisk, wall: float) -> int:
    """A number for this start, larger than that of every start before, though the clock may have gone back."""
    before = (disk.read(LIFE) or b"").decode(errors="replace").strip()
    life = life_number(wall, int(before) if before.isdigit() else 0)
    disk.write(LIFE, str(life).encode())
    return life


def _set_all(events: tuple[threading.Event, ...], *_: object) -> None:
    for event in events:
        event.set()


def deed_of(sequence: int, fact: Fact) -> Deed:
    """A fact of the server as a line of the audit log."""
    match fact:
        case RunChanged(name, fleet, phase, reason, by):
            return Deed(by, f"run is {phase}", fleet=fleet, subject=name, about=reason, sequence=sequence)
        case ScheduleChanged(name, fleet, what, reason, by):
            return Deed(by, f"schedule {what}", fleet=fleet, subject=name, about=reason, sequence=sequence)
        case RequestRefused(name, fleet, reason, by):
            return Deed(by, "run", "", fleet, name, "refused", reason, sequence)


def delete_run(submission: Submission, name: str) -> None:
    """Delete the folder of a run that has ended, unless a coordinator is at work there."""
    path = Path(submission.folder) / name
    if not journal.exists(FolderDisk(path)):
        return
    with own(known_runs.lock_of(path)):
        shutil.rmtree(path)


@contextmanager
def _broker(name: str, over: threading.Event, reload: threading.Event) -> Iterator[None]:
    """Run the fleet's broker until the block ends; one that another process runs is left alone."""
    fleet, up = FleetAdministration(name), threading.Event()

    def tend() -> None:
        while not over.is_set():
            try:
                with broker.tended(fleet) as tender:
                    up.set()
                    while not over.wait(broker.LOOK):
                        if reload.is_set():
                            reload.clear()
                            tender.reread()
                        tender.look()
            except ConfigError as error:  # noqa: PERF203 - once in a long while
                log.info("the broker is not run here fleet=%s why=%s", name, error)
                up.set()
                return
            except (EdgeflError, StoreError, OSError) as error:
                log.warning("the broker is started again fleet=%s why=%s", name, error)
                over.wait(AGAIN)

    thread = threading.Thread(target=tend, name=f"broker-{name}", daemon=True)
    thread.start()
    up.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        thread.join(2 * PATIENCE)


@contextmanager
def _enrolment(name: str, over: threading.Event, reload: threading.Event) -> Iterator[None]:
    """Let devices with a token in until the block ends."""
    fleet = FleetAdministration(name)

    def joined(device: str) -> None:
        log.info("joined fleet=%s device=%s", name, device)
        reload.set()

    def listen() -> None:
        try:
            enrolment.serve(fleet, joined, over.is_set, lambda: None)
        except OSError as error:
            log.warning("no device can enrol fleet=%s why=%s", name, error.strerror)

    thread = threading.Thread(target=listen, name=f"enrolment-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


def _put_of_fleet(put: Callable[[Any], None], fleet: str, event: Any) -> None:
    put(OfFleet(fleet, event))
