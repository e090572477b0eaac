"""The fleet's broker as a process of ours: Mosquitto with the fleet's configuration, until a signal ends it.

It reads copies of the fleet's files in a folder of its own: as root it becomes the user `nobody`, who cannot enter an
operator's home. SIGHUP makes it read them again (so does `systemctl reload`), and certificates that end soon are
renewed meanwhile. `lock` in the fleet's broker folder names the process that serves, and is held by it.
"""

import logging
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from edgefl.base.errors import ConfigError, EdgeflError, RunError
from edgefl.base.printable import printable
from edgefl.fleet import broker_files, mosquitto, sites
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.folder import SOCKET, FleetFolder
from edgefl.system.locks import own, owner
from edgefl.system.processes import Child
from edgefl.system.scratch import Scratch
from edgefl.system.service_manager import ServiceManager
from edgefl.wire.address import UNIX, Address
from edgefl.wire.broker import HEAP, NOBODY, SCRATCH, free_port, wait_until_up
from edgefl.wire.mosquitto_program import ACL_PLUGIN, installed
from edgefl.wire.opening import open_transport

log = logging.getLogger(__name__)

T = TypeVar("T")
LOG, EARLIER = "broker.log", ".1"  # the log, and what is put behind the name of an earlier one
LOG_LIMIT = 10 << 20  # bytes of a log that a new start still adds to
DOOR = "coordinators"  # the folder of their socket
HERE = Path()  # files are named as seen from Mosquitto's own folder: its configuration has no way to write a space
LOOK = 1.0  # seconds between looks whether it is still there
FLUSH = 5.0  # seconds for the lists of sites
HOUR = 3600.0  # seconds between looks at the dates of certificates


def serve(fleet: FleetAdministration, ready: Callable[[], None]) -> None:
    """Run it until SIGINT or SIGTERM; `ready` is called when it accepts connections."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signals.put(number))
    manager = ServiceManager()
    with tended(fleet) as tender:
        manager.ready(f"listens on {fleet.settings.broker}")
        ready()
        while True:
            manager.beat()
            with suppress(Empty):
                if signals.get(timeout=LOOK) != signal.SIGHUP:
                    manager.stopping()
                    return
                tender.reread()
            tender.look()


@contextmanager
def tended(fleet: FleetAdministration) -> Iterator["Tender"]:
    """Own the fleet's broker and run it while the block runs; raise `ConfigError` if another process runs it."""
    with own(fleet.folder.broker, remedy="the broker of this fleet runs already"):
        fleet.refresh(clock())
        with running(plan_of(fleet)) as broker:
            tell_sites(fleet)
            yield Tender(fleet, broker)


class Tender:
    """Looks after a broker that runs: its files, and the dates of its certificates."""

    def __init__(self, fleet: FleetAdministration, broker: "RunningMosquitto") -> None:
        self.fleet, self.broker = fleet, broker
        self._looked = time.monotonic()

    def look(self) -> None:
        """Renew what ends soon, once an hour; raise `RunError` if Mosquitto has ended."""
        if self.broker.child.gone.is_set():
            raise RunError(how_it_ended(self.broker.child))
        if time.monotonic() - self._looked > HOUR:
            self._looked = time.monotonic()
            if unless_torn(lambda: self.fleet.refresh(clock())):
                reread(self.broker)

    def reread(self) -> None:
        """Let it read its files again, because an operator has changed them."""
        reread(self.broker)
        unless_torn(lambda: tell_sites(self.fleet))


def tell_sites(fleet: FleetAdministration) -> None:
    """The list of every site, where it stands for a site that is away as well."""
    if not (names := sites.known(fleet.members)):
        return
    line = open_transport(fleet.folder.here, "lists")
    line.start(lambda _event: None)
    try:
        for name in names:
            line.publish(sites.list_topic(fleet.folder.name, name), sites.signed_list(fleet, name), retain=True)
        if not line.flush(FLUSH):
            log.warning("the lists of members were not published sites=%s", ",".join(names))
    finally:
        line.close()


def unless_torn(step: Callable[[], T]) -> T | None:
    """Return what a step of a running broker returns, or None if a file cannot be used: it keeps what it has."""
    try:
        return step()
    except (EdgeflError, OSError, ValueError) as error:  # files of the operator's, which may be half written
        log.error("the broker goes on with what it has why=%s", printable(str(error)))
        return None


def reload(folder: FleetFolder) -> bool:
    """Let the fleet's broker read its files again, if it is a process of ours on this machine."""
    with suppress(OSError, ValueError), (folder.broker / "lock").open("r+") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:  # its owner is alive; in another container its number is that of another process here
            if (number := owner(folder.broker)) is not None:
                os.kill(number, signal.SIGHUP)
                return True
    return False


def how_it_ended(child: Child) -> str:
    code = child.exit_code or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {child.last_words()}"
    return f"mosquitto {how}; its log is {child.output}. Start it again: devices and runs come back by themselves"


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker that is to run: where it listens, what it reads, and where its log and its socket are."""

    bind: str | None
    port: int
    texts: Callable[[Path, Path | None], dict[str, bytes]]  # by name, for this socket and this plugin for access lists
    log: Path
    socket: Path  # a link to it
    remedy: str  # where its port is taken


def plan_of(fleet: FleetAdministration) -> BrokerPlan:
    """The broker of a fleet."""
    settings, files = fleet.settings, fleet.folder.broker
    remedy = (
        "the fleet's devices know it by this port, so end what listens there (`ss -ltnp` names it);"
        " `edgefl fleet init --fleet OTHER --port N` makes a fleet with another one"
    )

    def texts(socket: Path, plugin: Path | None) -> dict[str, bytes]:
        return {
            **{name: (files / name).read_bytes() for name in mosquitto.FILES},
            mosquitto.CONFIGURATION: mosquitto.configuration(settings, HERE, socket, acl_plugin=plugin).encode(),
            mosquitto.COORDINATORS: mosquitto.acl_of_coordinators(settings.fleet).encode(),
        }

    return BrokerPlan(
        settings.bind, settings.port, texts, fleet.folder.path / LOG, Path(fleet.folder.here.host), remedy
    )


@dataclass(frozen=True, slots=True)
class RunningMosquitto:
    """A Mosquitto and what it was started with: the folder that it reads, its user if not ours, its plugin for ACLs."""

    plan: BrokerPlan
    child: Child
    home: Path
    user: str | None
    plugin: Path | None


@contextmanager
def running(plan: BrokerPlan) -> Iterator[RunningMosquitto]:
    """Run the Mosquitto of this plan; it ends with the block."""
    program = installed()
    if program is None:
        raise ConfigError("a secured fleet needs Mosquitto, which is not installed here: apt install mosquitto")
    every = plan.bind or "0.0.0.0"  # noqa: S104  only looked at
    free_port(every, plan.port, plan.remedy)
    # systemd gives a service a /tmp of its own, where no coordinator would find the socket.
    with Scratch(SCRATCH, os.environ.get("RUNTIME_DIRECTORY")) as scratch:
        home = scratch.path
        reaches = all(parent.stat().st_mode & stat.S_IXOTH for parent in home.parents)
        user = NOBODY if os.geteuid() == 0 and reaches else None
        if user is not None:
            home.chmod(0o711)  # it stays ours: in a folder of the user `nobody`, links would lead our writing elsewhere
        _door(home / DOOR, user)
        plugin = program.plugin(ACL_PLUGIN)
        if refusal := _install(plan, home, user, plugin):
            raise ConfigError(f"mosquitto would not take {refusal}; restore the fleet's folder from its copy")
        _begin_log(plan.log, program.version)
        command = [program.path, "-c", mosquitto.CONFIGURATION]
        child = Child(command, plan.log.absolute(), user=user, environment=HEAP, home=home)
        try:
            wait_until_up(child, Address("mqtts", plan.bind or "127.0.0.1", plan.port))
            wait_until_up(child, Address(UNIX, str(home / DOOR / SOCKET)))  # it opens one after the other
            _point(plan.socket, home / DOOR / SOCKET)
            yield RunningMosquitto(plan, child, home, user, plugin)
        finally:
            child.stop()
            plan.socket.unlink(missing_ok=True)


def _door(folder: Path, user: str | None) -> None:
    """A folder that only its owner may enter: Mosquitto, which makes the socket there, and the user who runs it."""
    folder.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(folder, user)


def _point(link: Path, socket: Path) -> None:
    """Let the link lead to the socket; it is exchanged, so that there is always one."""
    fresh = link.with_name(f".{link.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(socket)
    fresh.replace(link)


def _begin_log(path: Path, version: tuple[int, int]) -> None:
    """Put a line above what this Mosquitto will say; a log that has grown large makes room for a new one first."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_name(f"{path.name}{EARLIER}"))
    with path.open("a", encoding="utf-8") as log_file:
        log_file.write(f"{clock():%Y-%m-%d %H:%M:%S} UTC: edgefl starts mosquitto {version[0]}.{version[1]}\n")


def reread(broker: RunningMosquitto) -> None:
    """Let it read its files again, if it can use them; otherwise those that it has stay in force."""
    try:
        refusal = _install(broker.plan, broker.home, broker.user, broker.plugin)
    except OSError as error:
        refusal = f"{error.filename}: {error.strerror}"
    if refusal:
        log.error("the broker keeps the files that it has: it would not take %s", refusal)
        return
    if broker.child.process is not None:
        broker.child.process.send_signal(signal.SIGHUP)
    log.info("the broker reads its files again port=%d", broker.plan.port)


def _install(plan: BrokerPlan, home: Path, user: str | None, plugin: Path | None) -> str:
    """Put what Mosquitto reads into its own folder, each file whole; or none, and return what it would not take."""
    texts = plan.texts(Path(DOOR) / SOCKET, plugin)
    if refusal := broker_files.refused(texts):
        return refusal
    stay = b"user root\n" if os.geteuid() == 0 else b""  # a change of user now would undo the kernel's watch
    texts[mosquitto.CONFIGURATION] = stay + texts[mosquitto.CONFIGURATION]
    for name, data in texts.items():
        fresh = home / f".{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(data)
        if user is not None:
            shutil.chown(fresh, user)
    for name in texts:
        (home / f".{name}.new").replace(home / name)
    return ""
