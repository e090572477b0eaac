"""The fleet's broker as a process of ours: Mosquitto with the fleet's configuration, until a signal ends it.

It reads copies of the fleet's files in a folder of its own: as root we become nobody, and nobody cannot enter an
operator's home. SIGHUP makes it read them again (so does `systemctl reload`), and certificates that end soon are
renewed meanwhile. `lock` in the fleet's broker folder names the process that serves, and is held by it.
"""

import logging
import os
import shutil
import signal
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from queue import Empty, SimpleQueue

from edgefl.errors import ConfigError, RunError
from edgefl.fleet import mosquitto, sites
from edgefl.fleet.administration import Fleet
from edgefl.fleet.authority import clock
from edgefl.fleet.folder import SOCKET, FleetFolder
from edgefl.protocol.address import Address
from edgefl.protocol.broker import HEAP, NOBODY, SCRATCH, find_mosquitto, free_port, wait_until_up
from edgefl.protocol.mqtt import MqttTransport
from edgefl.system.locks import own
from edgefl.system.processes import Child
from edgefl.system.scratch import Scratch

log = logging.getLogger(__name__)

LOG = "broker.log"
DOOR = "coordinators"  # the folder of their socket
LOOK = 1.0  # seconds between looks whether it is still there
FLUSH = 5.0  # seconds for the lists of sites
HOUR = 3600.0  # seconds between looks at the dates of certificates


def serve(fleet: Fleet, ready: Callable[[], None]) -> None:
    """Run it until SIGINT or SIGTERM; `ready` is called when it accepts connections."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signals.put(number))
    with own(fleet.folder.broker, remedy="the broker of this fleet runs already"):
        fleet.refresh(clock())
        plan = plan_of(fleet)
        with running(plan) as (child, home):
            tell_sites(fleet)
            ready()
            looked = time.monotonic()
            while not child.gone.is_set():
                with suppress(Empty):
                    if signals.get(timeout=LOOK) != signal.SIGHUP:
                        return
                    reread(plan, child, home)
                    tell_sites(fleet)
                if time.monotonic() - looked > HOUR:
                    looked = time.monotonic()
                    if fleet.refresh(clock()):
                        reread(plan, child, home)
            raise RunError(how_it_ended(child))


def tell_sites(fleet: Fleet) -> None:
    """The list of every site, where it stands for a site that is away as well."""
    if not (names := sites.known(fleet.members)):
        return
    line = MqttTransport(fleet.folder.here, f"lists-{uuid.uuid4().hex[:8]}")
    line.start(lambda _event: None)
    for name in names:
        line.publish(sites.list_topic(fleet.folder.name, name), sites.signed_list(fleet, name), retain=True)
    if not line.flush(FLUSH):
        log.warning("the lists of members were not published sites=%s", ",".join(names))
    line.close()


def reload(folder: FleetFolder) -> bool:
    """Let the fleet's broker read its files again, if it is a process of ours on this machine."""
    with suppress(OSError, ValueError), (folder.broker / "lock").open("r+") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:  # its owner is alive
            os.kill(int(file.read()), signal.SIGHUP)
            return True
    return False


def how_it_ended(child: Child) -> str:
    code = child.exit_code or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {child.last_words()}"
    return f"mosquitto {how}; its log is {child.output}. Start it again: devices and runs come back by themselves"


@dataclass(frozen=True, slots=True)
class Plan:
    """A broker that is to run: where it listens, what it reads, and where its log and its socket are."""

    bind: str | None
    port: int
    texts: Callable[[Path, Path], dict[str, bytes]]  # by name, for this folder and this socket
    log: Path
    socket: Path  # a link to it
    remedy: str  # where its port is taken


def plan_of(fleet: Fleet) -> Plan:
    """The broker of a fleet."""
    settings, files = fleet.settings, fleet.folder.broker
    remedy = (
        "the fleet's devices know it by this port, so end what listens there (`ss -ltnp` names it);"
        " `edgefl fleet init --fleet OTHER --port N` makes a fleet with another one"
    )

    def texts(home: Path, socket: Path) -> dict[str, bytes]:
        return {
            **{name: (files / name).read_bytes() for name in mosquitto.FILES},
            mosquitto.CONFIGURATION: mosquitto.configuration(settings, home, socket).encode(),
            mosquitto.COORDINATORS: mosquitto.acl_of_coordinators(settings.fleet).encode(),
        }

    return Plan(settings.bind, settings.port, texts, fleet.folder.path / LOG, Path(fleet.folder.here.host), remedy)


@contextmanager
def running(plan: Plan) -> Iterator[tuple[Child, Path]]:
    """Its Mosquitto, and the folder that it reads; it ends with the block."""
    program = find_mosquitto()
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
            home.chmod(0o711)  # it stays ours: in a folder of nobody's own, links would lead our writing elsewhere
        _door(home / DOOR, user)
        _install(plan, home, user)
        plan.log.unlink(missing_ok=True)
        command = [program, "-c", str(home / mosquitto.CONFIGURATION)]
        child = Child(command, plan.log.absolute(), user=user, environment=HEAP, home=home)
        try:
            wait_until_up(child, Address("mqtts", plan.bind or "127.0.0.1", plan.port))
            _point(plan.socket, home / DOOR / SOCKET)
            yield child, home
        finally:
            child.stop()
            plan.socket.unlink(missing_ok=True)


def _door(folder: Path, user: str | None) -> None:
    """A folder that only its owner may enter: Mosquitto, which makes the socket there, and whoever runs it."""
    folder.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(folder, user)


def _point(link: Path, socket: Path) -> None:
    """Let the link lead to the socket; it is exchanged, so that there is always one."""
    fresh = link.with_name(f".{link.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(socket)
    fresh.replace(link)


def reread(plan: Plan, child: Child, home: Path) -> None:
    """Let it read its files again."""
    installed = home / mosquitto.CONFIGURATION
    _install(plan, home, installed.owner() if installed.stat().st_uid != os.geteuid() else None)
    if child.process is not None:
        child.process.send_signal(signal.SIGHUP)
    log.info("the broker reads its files again port=%d", plan.port)


def _install(plan: Plan, home: Path, user: str | None) -> None:
    """What Mosquitto reads, in its own folder; each file is exchanged whole."""
    texts = plan.texts(home, Path(DOOR) / SOCKET)  # as seen from there: its configuration has no way to write a space
    stay = b"user root\n" if os.geteuid() == 0 else b""  # a change of user now would undo the kernel's watch
    texts[mosquitto.CONFIGURATION] = stay + texts[mosquitto.CONFIGURATION]
    for name, data in texts.items():
        fresh = home / f".{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(data)
        if user is not None:
            shutil.chown(fresh, user)
        fresh.replace(home / name)
